"""The site file, the script made from it, and what the doctor proposes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oelm_core.config import as_dict, build_experiment, config_hash
from oelm_core.config.plain_yaml import read_yaml
from oelm_core.config.slurm import Site
from oelm_core.config.validation import validated
from oelm_core.errors import BadInput, Refused
from oelm_core.launch.launcher import check_launcher
from oelm_core.launch.request import RunRequest
from oelm_core.launch.slurm import script, site, submission, submit
from oelm_core.launch.slurm.site import (
    Discovery,
    card_kind,
    check_nodes,
    discover,
    explain,
    load_site,
    parse_overrides,
    parse_sinfo,
    propose,
)
from oelm_core.runs import attempts
from oelm_core.runs.folder import RunFolder, create
from oelm_core.runs.schema import Attempt
from tests.chaos.lab import experiment


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OELM_HOME", str(tmp_path))
    return tmp_path


def test_the_command_wins_over_the_preset_and_the_preset_over_the_file(home: Path) -> None:
    (home / "slurm.yaml").write_text("partition: file\ntime: 04:00:00\ncpus: 2\nsetup: [module load cuda]\n")
    site = load_site({"time": 90, "partition": "preset"}, ["partition=command", "memory=32gb"])
    assert (site.partition, site.time, site.cpus, site.memory) == ("command", "90", 2, "32G")
    assert site.setup == ["module load cuda"]


def test_without_a_file_the_clusters_defaults_hold(home: Path) -> None:
    assert load_site() == Site()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("partitoin: gpu", "Did you mean partition"),
        ("gres: gpu:a100:2", "the count as --per-run"),
        ("time: tomorrow", "not a time limit"),
        ("memory: lots", "not an amount of memory"),
        ("memory: 32G\nmemory_per_card: 16G", "memory and memory_per_card are both given"),
        ("python: apptainer exec 'lab.sif python", "a quote that is not closed"),
        ("cards_by: wish", "cards_by"),
        ("extra: [exclude=node3]", "no option of sbatch"),
        ("max_jobs: 0", "max_jobs"),
        ("- gpu", "expected keys"),
        ("partition: [", "not valid YAML"),
        ('partition: "a\\n#SBATCH --qos=all"', "line break"),
    ],
)
def test_a_broken_site_file_is_named_with_the_key(home: Path, text: str, words: str) -> None:
    (home / "slurm.yaml").write_text(text)
    with pytest.raises(BadInput, match=words) as refused:
        load_site()
    assert str(home / "slurm.yaml") in str(refused.value)


def test_overrides_are_read_as_yaml_but_lines_stay_lines() -> None:
    assert parse_overrides(["cpus=8", "extra=--exclude=a,b", "gres=none", "time=1-12"]) == {
        "cpus": 8,
        "extra": ["--exclude=a,b"],
        "gres": "none",
        "time": "1-12",
    }
    with pytest.raises(BadInput, match="key=value"):
        parse_overrides(["partition"])


def test_a_preset_may_say_what_it_needs_and_its_hash_stays(home: Path) -> None:
    plain = as_dict(experiment())
    chosen = build_experiment({**plain, "slurm": {"memory": "64G", "time": "2-0"}}, "here")
    assert chosen.slurm == {"memory": "64G", "time": "2-0"}
    assert config_hash(as_dict(chosen)) == config_hash(plain)
    with pytest.raises(BadInput, match=r"slurm.*unknown key 'memroy'.*memory"):
        build_experiment({**plain, "slurm": {"memroy": "64G"}}, "here")


def test_the_script_says_everything_sbatch_and_the_node_need(home: Path) -> None:
    site = validated(
        Site,
        {
            "partition": "gpu",
            "gres": "gpu:a100",
            "cpus": 6,
            "memory": "48G",
            "time": "1-00:00:00",
            "setup": ["module load cuda/12", "source env/bin/activate"],
            "extra": ["#SBATCH --exclude=node3"],
            "max_requeues": 7,
        },
        "test",
    )
    folder = RunFolder(home / "a folder" / "run-1")
    text = script.render_script(
        site, folder, device="auto", per_run=2, cwd=Path("/data/my lab"), python="/opt/python", environment={}
    )
    lines = text.splitlines()
    assert lines[0] == "#!/bin/bash"
    for line in (
        "#SBATCH --job-name=run-1",
        '#SBATCH --chdir="/data/my lab"',
        f'#SBATCH --output="{folder.path}/slurm/job.log"',
        "#SBATCH --open-mode=append",
        "#SBATCH --requeue",
        "#SBATCH --signal=B:USR2@120",
        "#SBATCH --kill-on-invalid-dep=yes",
        "#SBATCH --gres=gpu:a100:2",
        "#SBATCH --cpus-per-task=12",
        "#SBATCH --mem=48G",
        "#SBATCH --time=1-00:00:00",
        "#SBATCH --exclude=node3",
        "export OELM_MAX_REQUEUES=7",
    ):
        assert line in lines
    assert max(i for i, line in enumerate(lines) if line.startswith("#SBATCH")) < lines.index("module load cuda/12")
    assert lines[-1] == f"exec /opt/python -m oelm_core.launch.runner '--run-folder={folder.path}' --per-run=2"


@pytest.mark.parametrize(
    ("settings", "device", "options"),
    [
        ({"gres": "gpu:a100", "memory_per_card": "24G"}, "auto", ["--gres=gpu:a100:2", "--mem=48G"]),
        (
            {"gres": "gpu:a100", "cards_by": "gpus-per-node", "memory_per_card": "24G"},
            "auto",
            ["--gpus-per-node=a100:2", "--mem-per-gpu=24G"],
        ),
        ({"cards_by": "gpus-per-node", "memory": "64G"}, "auto", ["--gpus-per-node=2", "--mem=64G"]),
        ({"cards_by": "gpus", "nodes": 3, "memory_per_card": "24000"}, "auto", ["--gpus=6", "--mem-per-gpu=24000"]),
        ({"gres": "none", "memory_per_card": "4G"}, "auto", ["--mem=8G"]),
        ({"cards_by": "gpus", "memory_per_card": "4G"}, "cpu", ["--mem=8G"]),
    ],
)
def test_cards_and_their_memory_are_asked_for_as_the_site_has_it(
    home: Path, settings: dict[str, object], device: str, options: list[str]
) -> None:
    site = validated(Site, settings, "test")
    text = script.render_script(site, RunFolder(home / "run"), device=device, per_run=2, cwd=home, environment={})
    asked = [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH")]
    assert [one for one in asked if one.startswith(("--gres", "--gpus", "--mem"))] == options
    cards = 2 if options[0].startswith("--g") else 0
    assert f"export OELM_CARDS_ASKED={cards}" in text.splitlines()


def test_a_resume_with_other_devices_writes_the_script_anew_and_a_later_one_keeps_them(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submit, "_refuse_unless_over", lambda folder, force: None)
    monkeypatch.setattr(submit, "_submit", lambda *_, **__: None)
    record = RunRequest(experiment(), 1, per_run=2).record("slurm", after=None, beside=None)
    folder = create(home / "runs", record, None)

    def script_after(**asked: Any) -> str:
        submit.resume(folder, **asked)
        return submission.script_path(folder).read_text()

    def devices(text: str) -> tuple[bool, ...]:
        return tuple(f"--gres=gpu:{n}" in text and f"--per-run={n}\n" in text for n in (2, 3))

    assert devices(script_after()) == (True, False)
    assert devices(script_after(per_run=3)) == (False, True)
    attempts.claim(folder, Attempt(per_run=3, ended=1.0))
    assert devices(script_after(settings=["time=2:00:00"])) == (False, True)


def test_python_may_be_a_command_that_runs_in_a_container(home: Path) -> None:
    site = Site(python="apptainer exec --nv '/my images/lab.sif' python3")
    text = script.render_script(site, RunFolder(home / "run"), device="auto", per_run=1, cwd=home, environment={})
    command = "exec apptainer exec --nv '/my images/lab.sif' python3 -m oelm_core.launch.runner"
    assert text.splitlines()[-1].startswith(command)


def test_memory_said_later_replaces_memory_said_earlier_in_either_form(home: Path) -> None:
    (home / "slurm.yaml").write_text("memory_per_card: 24G\n")
    assert (load_site({"memory": "64G"}).memory, load_site({"memory": "64G"}).memory_per_card) == ("64G", None)
    again = load_site({"memory": "64G"}, ["memory_per_card=8G"])
    assert (again.memory, again.memory_per_card) == (None, "8G")


def test_a_percent_sign_in_a_path_is_no_pattern_and_a_cpu_run_asks_for_no_card(home: Path) -> None:
    text = script.render_script(
        Site(), RunFolder(home / "50%j" / "run"), device="cpu", per_run=1, cwd=home, environment={}
    )
    assert "50%%j/run/slurm/job.log" in text
    assert "--gres" not in text


def test_the_proposed_file_is_valid_and_names_the_partition_with_cards() -> None:
    found = parse_sinfo(
        "cpu*|up|infinite|10|(null)|64|256000\n"
        "gpu|up|2-00:00:00|4|gpu:a100:4(S:0-1)|64|512000+\n"
        "old|down|infinite|9|gpu:v100:8|40|128000\n"
    )
    site = validated(Site, read_yaml(propose(found)), "proposal")
    assert (site.partition, site.gres, site.cpus, site.time) == ("gpu", "gpu:a100", 16, "2-00:00:00")
    assert (site.memory, site.memory_per_card) == (None, "115200M")
    assert card_kind("gpu:2") == ("gpu", 2)
    assert card_kind("craynetwork:1") == (None, 0)
    assert propose([]) == ""


def test_without_sbatch_the_sentence_says_so_and_no_folder_appears(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(home))
    with pytest.raises(Refused, match="no sbatch on PATH"):
        submit.start(RunRequest(experiment(), 1))
    assert not (home / "runs").exists()
    assert discover().proposal == ""


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("Batch job submission failed: Job violates accounting/QOS policy (job submit limit)", "quota"),
        ("QOSMaxSubmitJobPerUserLimit", "quota"),
        ("Invalid account or account/partition combination specified", "set account"),
        ("Invalid qos specification", "set qos"),
        ("Requested time limit is invalid (missing or exceeds some limit)", "set time"),
        ("something nobody has heard of", "change what it complains about"),
    ],
)
def test_a_refusal_keeps_slurms_words_and_adds_what_to_change(words: str, hint: str) -> None:
    sentence = explain(words, Site())
    assert words in sentence
    assert hint in sentence


@pytest.mark.parametrize(
    "words",
    [
        "resolve_ctls_from_dns_srv: res_nsearch error: Host name lookup failure; fetch_config: DNS SRV lookup failed;"
        " Could not establish a configuration source",
        "Batch job submission failed: Unable to contact slurm controller (connect failure)",
        "ClusterName needs to be specified; Unable to process configuration file",
    ],
)
def test_a_controller_that_cannot_be_reached_has_refused_nothing(words: str) -> None:
    sentence = explain(words, Site())
    assert sentence.startswith(f"Slurm cannot be reached: {words}. Try again when")
    assert "refused" not in sentence
    assert "slurm.yaml" not in sentence


@pytest.mark.parametrize(
    ("launcher", "nodes", "words"),
    [("slurm", 0, "--nodes 0: a run needs"), ("local", 2, r"--nodes 2: only Slurm .*write --launcher slurm")],
)
def test_a_number_of_nodes_that_makes_no_sense_is_refused(launcher: str, nodes: int, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        check_launcher(launcher, nodes=nodes)
    check_launcher(launcher, nodes=1)


def test_more_nodes_than_the_partition_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    found = parse_sinfo("gpu*|up|infinite|2|gpu:1|8|1\ngpu*|up|infinite|1|gpu:2|8|1\nbig|up|infinite|9|gpu:1|8|1\n")
    monkeypatch.setattr(site, "discover", lambda: Discovery("", [], found))
    check_nodes(Site(nodes=3))
    check_nodes(Site(nodes=9, partition="gpu,big"))
    check_nodes(Site(nodes=20, partition="unheard-of"))  # Slurm has its own words for that
    with pytest.raises(Refused, match=r"--nodes 4 is more than the 3 nodes of partition gpu"):
        check_nodes(Site(nodes=4))


def test_the_interface_of_several_nodes_and_a_container_reach_the_ranks(home: Path) -> None:
    chosen = Site(nodes=2, interface="ib0", python="apptainer exec lab.sif python")
    text = script.render_script(chosen, RunFolder(home / "run"), device="auto", per_run=4, cwd=home, environment={})
    assert "#SBATCH --nodes=2\n" in text
    assert "#SBATCH --gres=gpu:4\n" in text
    assert "export GLOO_SOCKET_IFNAME=ib0\nexport NCCL_SOCKET_IFNAME=ib0\n" in text
    assert "export OELM_NODE_PYTHON='apptainer exec lab.sif python'\n" in text
