"""The loop of both families: step, settle, evaluate, checkpoint, stop when asked. It never waits for the device."""

from __future__ import annotations

import math
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from oelm_core.formatting import listed
from oelm_core.method import attention_stats
from oelm_core.method.freezing import apply_unfreezing, group_lr
from oelm_core.metric import metric_named
from oelm_core.runs.schema import UNFROZEN, Evaluated
from oelm_core.training import checkpoint
from oelm_core.training.failures import DiskFull, NonFinite
from oelm_core.training.gradients import Gradients
from oelm_core.training.recorder import keep_baseline_pattern
from oelm_core.training.schedule import dropout_seed, learning_rate, seed_draws
from oelm_core.training.sharding import gathered, joined
from oelm_core.training.supervision import Interrupted
from oelm_core.training.tasks import StepBatch
from oelm_core.training.timing import StepTimes, Stopwatch, untimed_steps

if TYPE_CHECKING:
    from oelm_core.training.session import Session

AHEAD = 2  # steps whose data is prepared in the background
LAG = 64  # steps whose figures may still be on the device
SKIPS = 100  # optimiser steps skipped in a row that end a run: the loss scale is down to nothing by then


@dataclass
class Pending:
    """A step whose loss and time are still on their way from the device."""

    step: int
    figures: torch.Tensor  # [3]: loss over all ranks, gradient norm, this rank's loss
    watch: Stopwatch
    lr: float
    wait: float
    tokens: int
    examples: int


class Loop:
    """fit() trains from the session's progress to its last step, or until a stop is asked for."""

    def __init__(self, session: Session) -> None:
        self.s = session
        self.pending: deque[Pending] = deque()
        self.recent = StepTimes()  # since the last train record
        self.before = session.progress.seconds  # spent in earlier attempts
        self.began = time.monotonic() - self.before
        self.first_step = session.progress.step + 1
        self.saved = (session.progress.step, session.progress.eval_due)
        compression = session.experiment.train.gradient_compression
        self.gradients = Gradients(
            session.model,
            session.task,
            session.ranks,
            session.precision,
            compression,
            session.shards,
            compiled=bool(session.experiment.train.compile),
        )
        self._loader = ThreadPoolExecutor(1, thread_name_prefix="data")
        self._loading: dict[int, Future[StepBatch[Any]]] = {}

    def fit(self) -> int:
        """0 when training is complete, else the signal that stopped it (all ranks agree on the step)."""
        s = self.s
        try:
            if s.progress.eval_due:
                best = self._evaluate(s.progress.step)
                self._save(best)
            for step in range(self.first_step, s.total + 1):
                asked = s.ranks.agree(s.stop.number)
                if asked:
                    return self._stopped(asked)
                self._step(step)
                self._after_step(step)
            return self._stopped(s.ranks.agree(s.stop.number)) if s.progress.eval_due else 0
        finally:
            self._loader.shutdown(wait=False, cancel_futures=True)

    def _stopped(self, asked: int) -> int:
        self._settle(wait=True)
        if self.s.progress.step:
            self._save(best=False)
        return asked

    # -- one optimiser step --------------------------------------------------------------------------------------------

    def _step(self, step: int) -> None:
        s, train = self.s, self.s.experiment.train
        batch, wait = self._next_batch(step)
        if s.unfreezing is not None and (step == self.first_step or s.unfreezing.changes_at(step - 1)):
            apply_unfreezing(s.model, s.experiment.method, s.unfreezing, step - 1)
            self._note_unfrozen(step)
        lr = learning_rate(train, step, s.total)
        for group in s.optimiser.param_groups:
            group["lr"] = group_lr(group, lr, step - 1)
        self.gradients.prepare(batch)
        seed_draws(dropout_seed(s.experiment.seed, step, s.ranks.rank), s.ranks.device)
        watch = Stopwatch(s.ranks.device)
        watch.mark()
        loss = torch.zeros((), device=s.ranks.device)
        for number, part in enumerate(batch.parts):
            with self.gradients.pass_of(batch, number):
                part_loss = self.gradients.loss(part, batch.units)
                s.scaler.scale(part_loss).backward()
            loss += part_loss.detach()
            del part_loss  # its graph goes within the step that made it, before the clock is read
        norm = self._update()
        figures = torch.stack([s.ranks.sum_(loss.clone()), norm.float(), loss]).to("cpu", non_blocking=True)
        watch.mark()  # after the copy: when this event has passed, the figures are here too
        self.pending.append(Pending(step, figures, watch, lr, wait, batch.tokens, batch.examples))
        s.progress.step = step

    def _note_unfrozen(self, step: int) -> None:
        """Says which layers this step is the first to train, if any."""
        starts = self.s.unfreezing.starts if self.s.unfreezing else {}
        layers = sorted(layer for layer, start in starts.items() if start == step - 1)
        if layers:
            names = listed([str(layer) for layer in layers])
            words = f"layer {names} begins to train" if len(layers) == 1 else f"layers {names} begin to train"
            self.s.recorder.event(step, UNFROZEN, f"step {step}: {words}")

    def _update(self) -> torch.Tensor:
        """Gradients clipped over what trains and applied. Returns their norm before clipping."""
        s = self.s
        parameters = [p for group in s.optimiser.param_groups for p in group["params"] if p.grad is not None]
        s.scaler.unscale_(s.optimiser)
        norm = joined(torch.nn.utils.clip_grad_norm_(parameters, s.experiment.train.clip or math.inf))
        s.scaler.step(s.optimiser)
        s.scaler.update()
        s.optimiser.zero_grad(set_to_none=True)
        return norm

    def _next_batch(self, step: int) -> tuple[StepBatch[Any], float]:
        """The step's data, and the seconds it was waited for; data of the next steps is begun."""
        for ahead in range(step, min(step + AHEAD, self.s.total) + 1):
            if ahead not in self._loading:
                self._loading[ahead] = self._loader.submit(self.s.task.load, ahead, self.s.ranks)
        began = time.perf_counter()
        batch = self._loading.pop(step).result()
        return batch, time.perf_counter() - began

    # -- after a step --------------------------------------------------------------------------------------------------

    def _after_step(self, step: int) -> None:
        s, train = self.s, self.s.experiment.train
        last = step == s.total
        evaluates = last or step % train.eval_every == 0
        checkpoints = last or step % (train.checkpoint_every or train.eval_every) == 0
        self._settle(wait=evaluates or checkpoints or len(self.pending) > LAG)
        s.recorder.progress(step, phase="running", force=step == self.first_step)
        if step % s.task.plan.steps_per_epoch == 0:
            s.progress.epoch_seconds.append(self._seconds() - s.progress.epoch_began)
            s.progress.epoch_began = self._seconds()
        best = self._evaluate(step) if evaluates else False
        if checkpoints or best:
            self._save(best)

    def _settle(self, wait: bool) -> None:
        """Takes in the figures of finished steps; with `wait`, of all. Stops the run at the first non-finite one."""
        while self.pending and (wait or self.pending[0].watch.ready()):
            done = self.pending.popleft()
            seconds = done.watch.seconds()  # also makes sure the figures have arrived
            loss, norm, own = done.figures.tolist()
            self._check_finite(done.step, loss, norm, own)
            skipped = self._note_skipped(done.step, norm)
            self._record(done, seconds, loss, norm, skipped)

    def _check_finite(self, step: int, loss: float, norm: float, own: float) -> None:
        s = self.s
        overflow_is_normal = s.scaler.is_enabled()  # it skips such a step and lowers its scale
        if math.isfinite(loss) and (math.isfinite(norm) or overflow_is_normal):
            return
        what = "loss" if not math.isfinite(loss) else "gradient"
        examples = s.task.plan.step(step).tolist()
        s.recorder.say(f"step {step}: {what} is not finite; examples of this batch: {examples}")
        raise NonFinite(
            f"non-finite {what} at step {step}; {self._kept()}; a lower train.lr or fp32 is the first thing to try.",
            elsewhere=not math.isfinite(loss) and math.isfinite(own),
        )

    def _kept(self) -> str:
        kept = checkpoint.steps(self.s.folder.checkpoints)
        return f"the checkpoint of step {kept[-1]} is kept" if kept else "there is no checkpoint yet"

    def _note_skipped(self, step: int, norm: float) -> bool:
        """Whether the scaler of fp16 skipped the step because a gradient overflowed; too many in a row end the run."""
        s, progress = self.s, self.s.progress
        if not s.scaler.is_enabled() or math.isfinite(norm):
            progress.skipped_in_a_row = 0
            return False
        progress.skipped += 1
        progress.skipped_in_a_row += 1
        if progress.skipped_in_a_row == 1:
            message = f"step {step}: the gradients overflowed, so the step was skipped and the loss scale lowered"
            s.recorder.event(step, "skipped", f"{message} ({progress.skipped} skipped so far)")
        if progress.skipped_in_a_row >= min(SKIPS, s.total):
            raise NonFinite(
                f"the last {progress.skipped_in_a_row} optimiser steps to step {step} were all skipped because their"
                f" gradients overflowed fp16; {self._kept()}; train in bf16, tf32 or fp32, or with a lower train.lr."
            )
        return True

    def _record(self, done: Pending, seconds: float, loss: float, norm: float, skipped: bool) -> None:
        s, progress = self.s, self.s.progress
        if done.step - self.first_step >= untimed_steps(s.total):
            s.times.add(seconds, done.tokens, done.examples, done.wait)
        progress.tokens += 0 if skipped else done.tokens
        progress.window.append(loss)
        self.recent.add(seconds, done.tokens, done.examples, done.wait)
        if done.step == 1 or done.step % s.experiment.train.log_every == 0 or done.step == s.total:
            steps, taken = len(self.recent.seconds), sum(self.recent.seconds)
            s.recorder.train(
                done.step,
                self._left(done.step),
                loss=sum(progress.window) / len(progress.window),
                lr=done.lr,
                grad_norm=norm,
                step_time=taken / steps,
                tokens_per_s=sum(self.recent.tokens) / taken,
                examples_per_s=sum(self.recent.examples) / taken,
                tokens=progress.tokens,
                data_wait=sum(self.recent.waits) / steps,
                **({"skipped": progress.skipped} if s.scaler.is_enabled() else {}),
            )
            progress.window = []
            self.recent = StepTimes()

    def _seconds(self) -> float:
        return time.monotonic() - self.began

    def _left(self, step: int) -> float | None:
        """Seconds to go, from the rate since this attempt began."""
        done = step - self.first_step + 1
        here = self._seconds() - self.before
        return here / done * (self.s.total - step) if done > 1 else None

    # -- evaluation and checkpoints ------------------------------------------------------------------------------------

    def _evaluate(self, step: int) -> bool:
        """Whether this evaluation is the best so far. A stop asked for meanwhile leaves it due."""
        with self.s.whole():
            return self._evaluate_whole(step)

    def _evaluate_whole(self, step: int) -> bool:
        s, progress = self.s, self.s.progress
        s.recorder.progress(step, phase="evaluating", force=True)
        began = time.monotonic()
        s.model.eval()
        try:
            with s.memory.evaluating(), s.uncompiled():
                found = s.task.evaluate(s.model, s.ranks, s.precision, s.stop)
        except Interrupted:
            progress.eval_due = True
            return False
        finally:
            s.model.train()
        if s.experiment.train.attention_stats and s.ranks.main:
            found.values.update(self._look_at_attention(step))
        seconds = time.monotonic() - began
        progress.eval_due = False
        progress.validation_seconds.append(seconds)
        so_far = self._seconds()
        entry: Evaluated = {"step": step, "seconds": so_far, **found.values}
        metric = metric_named(s.experiment.metric)
        best = metric.better(found.values[metric.name], progress.best[metric.name] if progress.best else None)
        best = bool(s.ranks.agree(int(best and s.ranks.main)))  # rounding may differ: all go by the first rank's word
        progress.last = entry
        if best:
            progress.best = entry
        if "accuracy" in found.values:
            progress.note_reached(found.values["accuracy"], step, so_far)
        s.recorder.evaluation(step, found, seconds, best)
        self._sample(step)
        s.recorder.progress(step, phase="running", force=True)
        return best

    def _look_at_attention(self, step: int) -> dict[str, float]:
        s = self.s
        inputs, real = s.task.probe(s.model)
        baseline = keep_baseline_pattern(s.folder, s.experiment, inputs["input_ids"])
        if baseline:
            s.recorder.event(step, "attention", f"attention is compared with that of {baseline}")
        with s.uncompiled():
            return attention_stats.record(s.folder.attention, step, s.model, inputs, real)

    def _sample(self, step: int) -> None:
        s = self.s
        if s.ranks.main and s.experiment.train.samples:
            s.model.eval()
            with s.uncompiled():
                s.recorder.samples(step, s.task.samples(s.model, step, s.precision))
            s.model.train()

    def _save(self, best: bool) -> None:
        """Writes the checkpoint of the present step (rank 0); a full disk leaves the earlier ones and ends the run."""
        s, step = self.s, self.s.progress.step
        s.progress.seconds = self._seconds()
        if not (s.ranks.main or s.shards) or self.saved == (step, s.progress.eval_due):
            return
        self.saved = (step, s.progress.eval_due)
        groups = {
            "model": checkpoint.model_tensors(s.model),
            "optimiser": checkpoint.optimiser_tensors(s.optimiser, s.model),
            "clock": s.times.as_tensors(),
        }
        if s.shards:
            groups = {name: gathered(tensors, s.ranks.main) for name, tensors in groups.items()}
        if s.ranks.main:
            self._write(groups, best)

    def _write(self, groups: dict[str, checkpoint.Tensors], best: bool) -> None:
        s, step = self.s, self.s.progress.step
        s.recorder.flush_to_disk()
        try:
            config = getattr(s.model, "config", None)
            s.checkpoint_bytes = checkpoint.save(s.folder.checkpoints, s.checkpoint_state(), groups, config)
        except OSError as error:
            kept = checkpoint.steps(s.folder.checkpoints)
            last = f"step {kept[-1]} is still usable" if kept else "there is none before it"
            raise DiskFull(
                f"the checkpoint of step {step} could not be written ({error.strerror or error}); {last};"
                f" free some space in {s.folder.checkpoints} and resume the run."
            ) from None
        if best:
            checkpoint.point(s.folder.checkpoints, "best", step)
        checkpoint.prune(s.folder.checkpoints, s.experiment.train.keep_checkpoints, s.progress.best_step)
