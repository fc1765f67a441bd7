"""Strikes a command at its n-th file operation, lets another process go on, and compares what an independent reader sees.

`python -m faults` does it for each n, until a run ends that was not struck; test_faults.py does it for some.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from driftline.runtime.java import QUICK
from faults.cases import CASES, LONG_STREAM, Case
from faults.control import Control, Mode, Struck, shim
from faults.power_cut import Disk, Operation, cuts, operations, write, written
from faults.readers import Seen, seen

WAIT = 300  # seconds for one command


class Worker:
    """A process that runs commands on the lakes of a folder; ``env`` has what loads the shim."""

    def __init__(self, home: Path, env: Mapping[str, str]) -> None:
        tests = str(Path(__file__).parents[1])
        path = os.pathsep.join([tests, *filter(None, [os.environ.get("PYTHONPATH")])])
        self._log = (home / "worker.log").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("worker.py")), str(home)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, start_new_session=True,
            env={"SPARK_SUBMIT_OPTS": QUICK, **os.environ, "PYTHONPATH": path, **env},
        )  # fmt: skip

    def await_start(self) -> None:
        assert self._answer() == {}, f"the worker did not start: {self._log.name}"

    def ask(self, format_: str, *commands: str, mode: Mode = Mode.OFF, at: int = 0) -> dict[str, Any] | None:
        """Run the commands; returns their answer, with the error if one failed, or None if the process has died."""
        request = {"format": format_, "commands": commands, "mode": mode, "at": at}
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps(request)}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any] | None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return json.loads(line) if line else None

    def stop(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(WAIT)
        self._process.stdout.close()
        self._log.close()


class Processes:
    """One that faults strike, another one after its death, and one that goes on."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._open = ExitStack()
        self._struck: Worker | None = None

    def __enter__(self) -> Self:
        self.home.mkdir(parents=True, exist_ok=True)
        self.control = self._open.enter_context(Control(self.home / "control"))
        self.record = self.home / "record"
        self._env = {
            "FAULTS_CONTROL": str(self.control.file),
            "FAULTS_RECORD": str(self.record),
            "LD_PRELOAD": str(shim(self.home)),
        }
        self.other = self._started({})
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def struck(self) -> Worker:
        """The one that faults strike, which is started where there is none."""
        if self._struck is None:
            self._struck = self._started(self._env)
        return self._struck

    def bury(self) -> None:
        """Forgets the one that faults strike, as it has died."""
        self._struck = None

    def _started(self, env: Mapping[str, str]) -> Worker:
        worker = Worker(self.home, env)
        self._open.callback(worker.stop)
        worker.await_start()
        return worker


@dataclass(frozen=True)
class Outcome:
    """One try: what was struck, and what was wrong afterwards."""

    case: str
    mode: Mode
    at: int
    struck: Struck
    error: str
    wrong: Sequence[str] = ()

    def __str__(self) -> str:
        place = f"{self.struck.operation} {'/'.join(Path(self.struck.path).parts[-3:])}"
        return f"{self.case}, {self.mode.name} at {self.at}, {place} ({self.error}): {'; '.join(self.wrong) or 'right'}"


class Bench:
    """A lake of one format, made once; each try begins with a copy of it, at the same place."""

    def __init__(self, processes: Processes, format_: str) -> None:
        self.format = format_
        self._processes = processes
        self._home = processes.home / format_
        self._lake, self._base = self._home / "lake", self._home / "base"
        self._after: dict[str, Seen] = {}
        self._operations: dict[str, int] = {}
        shutil.rmtree(self._lake, ignore_errors=True)
        self._lake.mkdir(parents=True)
        answer = processes.other.ask(format_, "prepare")
        assert answer == {}, answer
        self._before = self._seen()
        self._lake.rename(self._base)

    def _seen(self) -> Seen:
        return seen(self._lake, self.format)

    def restore(self, name: str) -> None:
        """Puts the lake there with which a command begins."""
        shutil.rmtree(self._lake, ignore_errors=True)
        shutil.copytree(self._base_of(name), self._lake)

    def _base_of(self, name: str) -> Path:
        """The lake with which a command begins; one that was moved is made of the other once."""
        moved = self._home / "moved"
        if CASES[name].moved and not moved.exists():
            elsewhere = self._home / "elsewhere"
            shutil.copytree(self._base, elsewhere)
            answer = self._processes.other.ask(self.format, "relocate elsewhere")
            assert answer == {}, answer
            elsewhere.rename(moved)
        return moved if CASES[name].moved else self._base

    def operations(self, name: str) -> int:
        """The number of operations that a command takes. It is run once without a fault, and must do what the case says."""
        if name in self._operations:
            return self._operations[name]
        case = CASES[name]
        self.restore(name)
        answer = self._processes.struck.ask(self.format, name, mode=Mode.COUNT)
        assert answer == {}, answer
        self._operations[name] = self._processes.control.disarm().count
        after = self._after[name] = self._seen()
        before = self._before
        if case.prices is None:
            assert after.ids(case.table) == sorted([*before.ids(case.table), *case.ids])
        else:
            assert after.prices(case.table) == sorted(case.prices.items())
        assert after.raws(case.table) == sorted([*before.raws(case.table), *case.raws])
        assert bool(after.raws(case.beside)) == bool(case.beside)
        return self._operations[name]

    def strike(self, name: str, mode: Mode, at: int) -> Outcome:
        """One try. What was not struck has nothing to be judged."""
        self.restore(name)
        answer, struck = self._ask_struck(name, mode, at)
        if mode == Mode.FREEZE:  # other files, so that no lock of the process that goes on is on them
            shutil.copytree(self._lake, self._home / "copy")
            shutil.rmtree(self._lake)
            (self._home / "copy").rename(self._lake)
        error = "died" if answer is None else answer.get("error", "")
        if not struck.number:
            return Outcome(name, mode, at, struck, error)
        dead = mode in (Mode.KILL, Mode.FREEZE)
        opened = self._opened(name, acknowledged=False) if CASES[name].moved else None
        wrong = [f"it does not open: {opened['trace']}"] if opened else []
        wrong += self._judged(name, None if dead else answer)
        if answer is None and not dead:
            wrong.append("the process died")
        return Outcome(name, mode, at, struck, error.split("\n", 1)[0], wrong)

    def _ask_struck(self, name: str, mode: Mode, at: int) -> tuple[dict[str, Any] | None, Struck]:
        """The answer to the command that a fault strikes; None: the process has died."""
        answer = self._processes.struck.ask(self.format, name, mode=mode, at=at)
        if answer is None:
            self._processes.bury()
        return answer, self._processes.control.disarm()

    def kill_again_and_again(self, name: str) -> Outcome:
        """The command, killed as often as its case says, each time at another operation of about one batch."""
        case, chance = CASES[name], random.Random(self.format)
        longest = self.operations(name) * 3 // (2 * len(LONG_STREAM))
        self.restore(name)
        for _ in range(case.kills):
            _, struck = self._ask_struck(name, Mode.KILL, chance.randint(1, longest))
            assert struck.number, "it ended before it was killed so often"
        return Outcome(name, Mode.KILL, struck.number, struck, "died", self._judged(name, None))

    def power_cuts(self, name: str, at: Callable[[int], Iterable[int]]) -> Iterator[Outcome]:
        """Cut the power at operations of a command, by their numbers of so many; an outcome for each disk that is left.

        Driftline opens it first: a commit that was not acknowledged may have to be taken back.
        """
        self.operations(name)
        self.restore(name)
        self._processes.record.write_bytes(b"")
        answer, _ = self._ask_struck(name, Mode.RECORD, 0)
        assert answer is not None and answer.keys() == {"acknowledged"}, answer
        record = list(operations(self._processes.record, self._lake))
        whole = Disk(self._base_of(name))
        for operation in record:
            whole.apply(operation)
        assert whole.now() == written(self._lake), "the record lacks operations"
        acknowledged = [*answer["acknowledged"], len(record)]
        for cut in cuts(record, self._base_of(name), [*at(len(record)), len(record)]):
            write(cut.contents, self._lake)
            batches = sum(count <= cut.at for count in acknowledged)
            opened = self._opened(name, acknowledged=batches == len(acknowledged))
            wrong = [f"it does not open: {opened['trace']}"] if opened else []
            wrong += self._judged(name, None, batches=batches, all_batches=len(acknowledged))
            operation = cut.operation or Operation("", "", "", 0, b"")
            place = Struck(cut.count, cut.at, operation.kind, operation.path)
            yield Outcome(f"{name}, {cut.left}", Mode.RECORD, cut.at, place, "power cut", wrong)

    def _opened(self, name: str, *, acknowledged: bool) -> dict[str, Any] | None:
        """The answer of another process that opens the lake; one that was moved is made whole before."""
        first = [] if not CASES[name].moved else ["check home"] if acknowledged else [name]
        return self._processes.other.ask(self.format, *first, "open")

    def _judged(
        self, name: str, answer: dict[str, Any] | None, *, batches: int = 0, all_batches: int = 1
    ) -> list[str]:
        """The faults of the lake now, and after another process went on.

        ``answer``: None of one that died, after it had acknowledged ``batches`` of all.
        """
        case = CASES[name]
        try:
            now = self._seen()
        except Exception as error:
            return [f"it cannot be read: {type(error).__name__} {error}"]
        is_before, is_after = (
            _state(now, case) == _state(s, case) for s in (self._before, self._after[name])
        )
        wrong = [f"missing: {path}" for path in now.missing]
        if not (is_before or is_after or case.steps):
            wrong.append(f"neither as before nor as after: {now.tables.get(case.table)}")
        if (batches == all_batches and not is_after) or (
            batches >= case.tables and is_before and not is_after
        ):
            wrong.append(f"{batches} batches were acknowledged, and there is {now.tables.get(case.table)}")
        if answer is not None:
            wrong += _said(answer, case, is_before=is_before)
        again = [name] if case.always or is_before else []
        if answer_of_other := self._processes.other.ask(self.format, *again, "clean 0"):
            wrong.append(f"another process cannot go on: {answer_of_other['trace']}")
        try:
            last = self._seen()
        except Exception as error:
            return [*wrong, f"it cannot be read in the end: {type(error).__name__} {error}"]
        return wrong + self._wrong_in_the_end(name, last, stuck=bool(answer is None or "error" in answer))

    def _wrong_in_the_end(self, name: str, last: Seen, *, stuck: bool) -> list[str]:
        case, after = CASES[name], self._after[name]
        wrong = [f"missing in the end: {path}" for path in last.missing]
        wrong += [f"left in the end: {path}" for path in last.unknown]
        if _state(last, case) != _state(after, case):
            wrong.append(f"in the end there is {last.tables.get(case.table)}")
        raws, expected = Counter(last.raws(case.table)), Counter(after.raws(case.table))
        if raws != expected and not (stuck and case.copies and raws - expected <= Counter(case.raws)):
            wrong.append(f"quarantined in the end: {raws}")
        if last.raws(case.beside) != after.raws(case.beside):
            wrong.append(f"quarantined beside it in the end: {last.raws(case.beside)}")
        return wrong


def _said(answer: Mapping[str, Any], case: Case, *, is_before: bool) -> Iterator[str]:
    """The faults of a command's answer. After an error nothing must have changed, unless it says so."""
    error = answer.get("error")
    if not case.always and (error is not None) != is_before and "is not known" not in (error or ""):
        yield f"it says {error or 'that it is done'}, and the table is {'as before' if is_before else 'changed'}"
    if error is not None and not answer["known"]:
        yield f"the error is raw: {answer['trace']}"


def _state(found: Seen, case: Case) -> tuple[list[str], list[str]]:
    return found.tables.get(case.table, ([], []))
