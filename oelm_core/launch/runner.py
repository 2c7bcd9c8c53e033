"""The runner: a light process that waits for devices, starts the worker, watches it and writes down how it ended."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if __name__ == "__main__":  # msgspec takes typing_extensions where it finds it: a megabyte that no runner needs
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]

from msgspec.structs import replace

from oelm_core import patience
from oelm_core.errors import LabError, NotFound
from oelm_core.launch import machine_state, queue, spawn, suspects, worker_exit
from oelm_core.launch.acquire import DependencyFailed, Devices, Waiter, pause_left, wait_for_run
from oelm_core.launch.ending import Ending
from oelm_core.launch.ranks import RankProcesses
from oelm_core.launch.run_writer import RunWriter
from oelm_core.launch.spawn import SIGNALS
from oelm_core.runs import attempts, outcomes, process
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import Attempt, MachineStates, Outcome, RunRecord, RunState, Stop, WorkerProgress
from oelm_core.runs.status import FINAL, RunStatus

if TYPE_CHECKING:
    from oelm_core.launch.slurm.job import Job


class Stopped(Exception):
    """A run that waits was told to end."""


class Runner(RunWriter):
    """One attempt of one run, from the claim to the last descendant's end."""

    def __init__(self, folder: RunFolder, run: RunRecord, ticket: Path | None) -> None:
        super().__init__(folder)
        self.run = run
        self.ticket = ticket
        self.taken: Devices | None = None
        self.ranks = RankProcesses()
        self.port: spawn.HeldPort | None = None
        self.stop: str | None = None  # None, "gently" or "now"
        self.signalled = False
        self.save_and_leave = False  # SIGUSR2 came
        self.job = _slurm_job(folder)

    # -- the attempt ---------------------------------------------------------------------------------------------

    def claim(self, force: bool) -> None:
        """Makes the attempt ours; what the attempt before left behind is cleared away."""
        before = attempts.last(self.folder)
        me, started = process.me(), time.time()
        self.attempt = Attempt(
            host=me.host,
            runner=me,
            slurm=self.job.record if self.job else None,
            world_size=self.run.per_run * (self.job.nodes if self.job else 1),
            per_run=self.run.per_run,
            from_step=attempts.newest_checkpoint_step(self.folder),
            started=started,
        )
        force = force or (self.job is not None and self.job.takes_over(before))
        attempts.claim(self.folder, self.attempt, force=force)
        if self.job:
            self.job.introduce(self.folder)
        # Sums depend on the number of threads. With other ranks they differ anyway: each has its share of the cores.
        same_ranks = before is not None and before.world_size in (None, self.attempt.world_size)
        self.threads_before = before.threads if before and same_ranks else None
        stop = self.folder.read(Stop)
        if self.attempt.attempt > 1 and stop is not None and stop.attempt < self.attempt.attempt:
            self.remove(Stop.FILE)
        self.remove(WorkerProgress.FILE)
        outcomes.remove_all(self.folder)
        old = self.folder.read(RunState) or RunState(state="queued")
        if before and before.ended is None:  # nobody lived to write down its end
            before.ended, before.state = old.heartbeat, "lost"
            self.insist(lambda: attempts.update(self.folder, before), seconds=0)
        self.state = RunState(
            state="waiting",
            host=me.host,
            boot_id=me.boot_id,
            boot_time=me.boot_time,
            pid=me.pid,
            started=me.started,
            step=old.step,
            total=old.total,
            heartbeat=started,
            attempt=self.attempt.attempt,
        )
        self.beat(force=True)

    def run_attempt(self) -> RunStatus:
        """The whole attempt; returns how it ended. The leases are still held then."""
        try:
            self.rest(0.0)
            wait_for_run(self.run, self.folder.path.parent, self.rest, self.say)
            self._take_devices()
            self._pause()
            self._start_worker()
        except Stopped:
            return self._stopped_while_waiting()
        except DependencyFailed as error:
            return RunStatus("stopped", "dependency", str(error))
        except NotFound as error:
            return RunStatus("failed", "config", str(error))
        except LabError as error:
            return RunStatus("failed", "config" if error.exit_code == 2 else error.reason, str(error))
        return self._watch()

    def give_up(self, error: Exception) -> RunStatus:
        """Something failed in the runner itself: the worker saves and ends, the leases stay ours until it has."""
        self.stop = self.stop or "gently"
        try:
            self._watch()
        except Exception:
            ending = Ending()
            ending.by(0.0)
            while not self.ranks.gone():
                if ending.kills(time.monotonic()):
                    self.ranks.kill()
                time.sleep(0.1)
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        what = error.strerror if isinstance(error, OSError) and error.strerror else f"{type(error).__name__}: {error}"
        return RunStatus("failed", "disk" if full else "error", f"The runner could not continue: {what}.")

    def conclude(self, end: RunStatus) -> None:
        """Gives the devices back (every descendant is gone by now) and writes the final state, the very last thing."""
        now = time.time()
        self.take_progress()
        self.take_last_step()
        end, again = self._whether_again(end)
        codes = [one.code for one in self.ranks.ends.values()]
        code = next((one for one in codes if one), 0 if codes else None)
        self.attempt.ended, self.attempt.state, self.attempt.reason = now, end.state, end.reason
        self.attempt.exit_code = code if code is not None and code >= 0 else None
        self.attempt.signal = signal.Signals(-code).name if code is not None and code < 0 else None
        with self._whatever_happens("the machine's state was not recorded"):
            if self.attempt.machine is not None:
                self.attempt.machine.after = machine_state.look(self.taken.kind if self.taken else "cpu")
        if end.reason == "gpu_fault":
            with self._whatever_happens("no card was marked as suspect"):
                end = end._replace(message=self._suspect(end.message or ""))
        self.state.state, self.state.reason, self.state.message = end
        self.state.workers, self.state.heartbeat, self.state.ended = [], now, now
        with self._whatever_happens("not every device was given back before the runner's end"):
            self.release()
        self.insist(lambda: attempts.update(self.folder, self.attempt))
        if self.job and again:
            self._queue_again(self.job, again)
        if self.state.state in FINAL:
            self._tell_ledger()
        self.insist(lambda: self.folder.write(self.state))

    def notify(self) -> None:
        """Tells the user of the end, if asked to; what goes wrong is kept, and said in the run's log."""
        if self.state.state not in FINAL:
            return
        from oelm_core.notify import tell
        from oelm_core.settings import settings_file

        if not settings_file(self.folder.path.parent.parent).exists():
            return
        sys.modules.pop("typing_extensions", None)  # from here on memory is no matter, and YAML's readers want it
        with self._whatever_happens("nobody was told of the end"):
            notice = tell(self.folder)
            if notice is not None and notice.problem:
                self._log(notice.problem)

    @contextlib.contextmanager
    def _whatever_happens(self, otherwise: str) -> Iterator[None]:
        """For what is done beside the run's end, which is written all the same. The log says what went wrong."""
        try:
            yield
        except Exception as error:
            self._log(f"{otherwise}: {type(error).__name__}: {error}")

    def _log(self, sentence: str) -> None:
        with contextlib.suppress(OSError), open(self.folder.log, "a", encoding="utf-8") as log:
            log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {sentence}\n")

    def _whether_again(self, end: RunStatus) -> tuple[RunStatus, str | None]:
        """How a job's attempt ended, and the message with which it is queued again; None where it is not."""
        lost = end.reason == "node_fail"
        if self.job is None or self.stop or not (lost or (self.save_and_leave and end.state == "stopped")):
            return end, None
        saved = attempts.newest_checkpoint_step(self.folder)
        progressed = saved > (self.attempt.from_step or 0)
        what = end.message or "" if lost else "Saved at the time limit"
        if lost and not progressed:  # once: what stops it on every node is no fault of one
            before = [one for one in attempts.read_all(self.folder) if one.attempt != self.attempt.attempt]
            progressed = not before or before[-1].reason != "node_fail"
        refusal = self.job.why_not_again(progressed, what)
        end = RunStatus("stopped", "node_fail" if lost else "timeout", refusal)
        if refusal is not None:
            return end, None
        if lost:
            return end, f"{what} Queued again, from step {saved}."
        return end, f"Saved at step {self.state.step} before the time limit. Queued again."

    def _tell_ledger(self) -> None:
        from oelm_core.runs import ledger  # late, as all that only an end needs
        from oelm_core.runs.store import HeadlineReader

        with self._whatever_happens("the ledger does not have this end"):
            end = ledger.LedgerEnd(
                self.state.state, self.state.reason, *HeadlineReader(self.folder).read(self.run.config)
            )
            ledger.append(ledger.about_run("ended", self.folder.id, self.run, end), self.folder.path.parent)

    def _queue_again(self, job: Job, message: str) -> None:
        """Back into Slurm's queue. The state is written first: Slurm ends this process as soon as it agrees."""
        ended = self.state
        nobody = {"pid": None, "started": None, "ended": None, "launcher": "slurm"}
        self.state = replace(ended, state="queued", reason=None, message=message, **nobody)
        self.insist(lambda: self.folder.write(self.state))
        try:
            refusal = job.requeue()
        except LabError as error:
            refusal = str(error).rstrip(".")
        if refusal is not None:
            message = f"{message.partition('. ')[0]}, but Slurm would not queue it again: {refusal}; resume it."
            self.state = replace(ended, message=message)

    def _suspect(self, message: str) -> str:
        """Keeps the cards that failed from the queue. Slurm's are its own to judge."""
        if self.taken is None or self.taken.kind != "cuda" or not self.taken.leases:
            return message
        labels = dict(zip((one.device for one in self.taken.leases), self.taken.labels, strict=True))
        failed = suspects.failed_cards(outcomes.read_all(self.folder), list(labels))
        for card in failed:
            suspects.mark(card, self.folder.id, message)
        which = " ".join(f"GPU {labels[card]} is suspect until `oelm gpus --trust {labels[card]}`." for card in failed)
        return f"{message} {which}"

    def release(self) -> None:
        for held in self.taken.leases if self.taken else []:
            held.release()
        self.taken = None
        if self.ticket is not None:
            queue.leave(self.ticket)
        queue.announce()

    # -- waiting -------------------------------------------------------------------------------------------------

    def rest(self, seconds: float) -> None:
        """Sleeps, but takes signals and stop requests at once; raises Stopped when told to end before the worker."""
        self._listen(seconds)
        if not self.ranks.started and (self.stop or self.save_and_leave):
            raise Stopped

    def say(self, message: str) -> None:
        self.state.state, self.state.message = "waiting", message
        self.beat()

    def _listen(self, seconds: float) -> None:
        while True:
            got = signal.sigtimedwait(SIGNALS, seconds)
            if got is None:
                break
            if got.si_signo in (signal.SIGTERM, signal.SIGINT):
                self.stop, self.signalled = self.stop or "gently", True
            elif got.si_signo == signal.SIGUSR2:
                self.save_and_leave = True
            seconds = 0.0  # whatever woke us is looked at now; take what else is pending
        request = self.folder.read(Stop)
        if request is not None:
            self.stop = "now" if request.now else self.stop or "gently"

    def _stopped_while_waiting(self) -> RunStatus:
        if self.folder.read(Stop) is not None:
            return RunStatus("stopped", "user", "Stopped while it waited.")
        if self.stop:
            return RunStatus("stopped", "signal", "The runner was told to end while it waited.")
        return RunStatus("stopped", "preempted", "Preempted while it waited.")

    def _pause(self) -> None:
        assert self.taken is not None
        while (left := pause_left(self.taken.leases, self.run.pause)) > 0:
            self.say(f"pausing {left:.0f} s more, so that the device is as it was for the run before")
            self.rest(min(left, 1.0))

    def _take_devices(self) -> None:
        if self.job:  # Slurm has chosen them and keeps others away
            self._note_devices(self.job.devices(self.run.devices_asked or "auto"))
            return
        threads = self.run.setting("train.threads") or self.threads_before
        waiter = Waiter(self.run, self.folder, threads, self.rest, self.say, self.attempt.attempt == 1)
        ticket, self.ticket = self.ticket, None
        self.taken = waiter.take(ticket, self._note_devices)

    def _note_devices(self, taken: Devices) -> None:
        self.taken = taken
        self.state.devices = self.attempt.devices = taken.names
        self.attempt.leases = [one.device for one in taken.leases]
        attempts.update(self.folder, self.attempt)

    # -- the worker ----------------------------------------------------------------------------------------------

    def _start_worker(self) -> None:
        assert self.taken is not None
        if self.run.report_to:
            from oelm_core.launch import bridges

            bridges.start(self.folder, self.run.report_to)  # first: once there is a worker, orphans become ours
        ranks = self.attempt.world_size or 1
        threads = max(1, len(self.taken.cores) // ranks) if self.taken.kind == "cpu" else self.threads_before
        self.log_start = self.folder.log.stat().st_size if self.folder.log.exists() else 0
        cwd = Path(self.run.cwd or ".")
        cwd = cwd if cwd.is_dir() else self.folder.path
        cards = [one.device for one in self.taken.leases]
        if self.job:
            cards = list(self.job.cards)
            threads = self.job.threads(ranks) if self.taken.kind == "cpu" else threads
        self.attempt.threads, self.attempt.machine = threads, MachineStates(machine_state.look(self.taken.kind))
        attempts.update(self.folder, self.attempt)
        if ranks > 1:
            self.port = spawn.hold_port()  # until the runner ends
        port = self.port.number if self.port else 0
        environment = spawn.environment(self.taken.kind, cards, threads)
        if self.job and self.job.nodes > 1:
            from oelm_core.launch.slurm.spread import Place, SpreadRanks

            place = Place(self.folder, cwd, self.run.worker, self.taken.kind, threads)
            self.ranks = SpreadRanks(self.job, ranks, self._record_workers)
            self.ranks.start(place, environment, port)
            return
        self.ranks = RankProcesses()
        for rank in range(ranks):
            spawn.spawn(
                spawn.worker_command(self.folder.path, self.run.worker),
                cwd=cwd,
                environment={**environment, **(spawn.rank_environment(rank, ranks, port) if ranks > 1 else {})},
                log=self.folder.log,
                cores=self.taken.cores,
                keep=[one.descriptor for one in self.taken.leases],
                record=partial(self._record_rank, rank),
            )

    def _record_rank(self, rank: int, pid: int) -> None:
        self.ranks.note(rank, pid)
        self._record_workers()

    def _record_workers(self) -> None:
        self.state.state, self.state.message = "starting", None
        self.state.worker_started = self.state.worker_started or time.time()
        self._record_descendants(self.ranks.own_pids)
        self.beat(force=True)

    def _record_descendants(self, pids: list[int]) -> None:
        workers = [worker for worker in map(process.identity, pids) if worker.started is not None]
        self.state.workers = workers
        for held in self.taken.leases if self.taken else []:
            held.record(workers)
            held.refresh()

    def _watch(self) -> RunStatus:
        """Follows the ranks until they and everything below them is gone."""
        stopping, failing, next_look, gap = False, False, 0.0, 1.0
        ending = Ending()
        while not self.ranks.gone():
            now = time.monotonic()
            if (self.stop or self.save_and_leave) and not stopping:
                stopping = True
                ending.by(now + patience.GRACE.seconds())
                self.state.state, self.state.message = "stopping", None
                self.ranks.tell(signal.SIGTERM if self.stop else signal.SIGUSR2)
                self.beat(force=True)
            failed = None if failing else self._failed_rank()
            if failed is not None:
                failing = True
                ending.by(now + patience.RANK_GRACE.seconds())
                self.state.state, self.state.message = "stopping", failed.sentence
                self.ranks.end_others(failed.rank)
                self.beat(force=True)
            elif not ending.is_set and (self.folder.path / Outcome.FILE).exists():
                ending.by(now + patience.GRACE.seconds())  # its last act was to say how it went
            if not self.ranks.living() and not ending.is_set:
                ending.by(now + 5.0)
                self.ranks.clear()
            if self.stop == "now":
                ending.by(now)
            if ending.kills(now):
                self.ranks.kill()
            self.take_progress()
            if ending.is_stuck(now):
                self.state.state, self.state.message = "stopping", self.ranks.stuck()
            if now >= next_look:
                self._record_descendants(process.descendants())
                next_look, gap = now + gap, min(gap * 2, 8.0)
            self.beat()
            hurried = not self.ranks.living() or self.stop == "now"
            self._listen(0.05 if hurried and not ending.is_stuck(now) else 1.0)
        log_tail = worker_exit.tail(self.folder.log, self.log_start)
        return worker_exit.judge(
            self.ranks.ends,
            outcomes.read_all(self.folder),
            stop_asked=self.folder.read(Stop) is not None,
            signalled=self.signalled,
            kernel_killed=self.ranks.kernel_killed,
            log_tail=log_tail,
            ranks=self.attempt.world_size or 1,
            on_cards=self.taken is None or self.taken.kind == "cuda",
            looks=self.ranks.looks,
            trouble=self.ranks.trouble(log_tail),
        )

    def _failed_rank(self) -> worker_exit.FailedRank | None:
        """Of several ranks the one because of which the others are ended; alone a worker ends by itself."""
        if (self.attempt.world_size or 1) == 1 or not self.ranks.living():
            return None
        said = outcomes.read_all(self.folder)
        silent = [rank for rank in self.ranks.ends if rank not in said]
        return worker_exit.failed_rank(said, silent + self.ranks.missing)


def main(argv: list[str] | None = None) -> int:
    arguments = dict(part.partition("=")[::2] for part in (sys.argv[1:] if argv is None else argv))
    folder = RunFolder(Path(arguments["--run-folder"]))
    ready = int(arguments["--ready"]) if arguments.get("--ready") else None
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    with contextlib.suppress(OSError):  # a run's files are for whom its folder is for, whoever resumes it
        os.umask(~os.stat(folder.path).st_mode & 0o777)
    ticket = Path(arguments["--ticket"]) if arguments.get("--ticket") else None
    run = folder.read(RunRecord)
    if run is None:
        print(f"{folder.path}/run.json cannot be read; nothing to run.", file=sys.stderr)
        return 2
    run.per_run = int(arguments.get("--per-run") or attempts.per_run(folder, run))
    runner = Runner(folder, run, ticket)
    try:
        runner.claim(force="--force" in arguments)
    except LabError as error:
        _answer(ready, str(error))
        if runner.job:
            print(error, file=sys.stderr)
        return error.exit_code
    _answer(ready, "claimed")
    try:
        end = runner.run_attempt()
    except Exception as error:  # a full disk, no process left to fork: the run ends, but never without a word
        import traceback  # late: it costs a waiting runner memory

        traceback.print_exc()
        end = runner.give_up(error)
    runner.conclude(end)
    runner.notify()
    if runner.job and run.report_to and runner.state.state in FINAL:
        from oelm_core.launch import bridges

        bridges.wait(folder, run.report_to)  # Slurm ends them with the job
    if runner.job:  # a job that depends on this one starts only if it finished
        return 0 if runner.state.state == "finished" else 1
    return 0 if runner.state.state in FINAL - {"failed"} else 1


def _slurm_job(folder: RunFolder) -> Job | None:
    if "OELM_JOB_OF" not in os.environ:
        return None
    from oelm_core.launch.slurm.job import current_job

    return current_job(folder.id)


def _answer(ready: int | None, message: str) -> None:
    """Answers whoever waits for the claim (`oelm resume`); they may have gone away."""
    if ready is None:
        return
    with contextlib.suppress(OSError):
        os.write(ready, message.encode())
        os.close(ready)


if __name__ == "__main__":
    sys.exit(main())
