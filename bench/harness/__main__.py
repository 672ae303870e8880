"""python -m bench.harness [--quick] [--check] [--note TEXT] [--no-record] [--length LENGTH] [SCENARIO ...]

Runs scenarios against Espalier and Cassandra, prints tables and bars, writes a record per scenario to
bench/record/ and one report to bench/out/. Scenarios that are named run in full length. Without names, all run, in
half an hour. With --quick, all take five minutes, and a named one as long as it takes among all. With --check the
exit status is 1 when a bar is missed.
"""

import argparse
import datetime
import sys
import time
import traceback
from contextlib import closing

from bench.harness import in_process, load, machine, record, report, servers
from bench.harness.length import Length
from bench.harness.outcome import Outcome
from bench.harness.scenarios import BY_DEFAULT, PROGRAMS, SCENARIOS, SHARING
from bench.harness.session import Session
from proof import places

RECORDS = places.ROOT / "bench" / "record"
REPORTS = places.ROOT / "bench" / "out"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--length", choices=[length.value for length in Length], help="whatever --quick and the names would make it")
    parser.add_argument("--check", action="store_true", help="exit status 1 when a bar is missed")
    parser.add_argument("--note", default="", help="goes into the record")
    parser.add_argument("--no-record", action="store_true", help="leave bench/record/ as it is")
    parser.add_argument("scenarios", nargs="*")
    options = parser.parse_args()
    names = options.scenarios or BY_DEFAULT
    for name in names:
        if name not in SCENARIOS:
            sys.exit(f"bench: {name}: there is no such scenario; there are {', '.join(SCENARIOS)}")
    if not servers.binary_is_there():
        sys.exit("bench: no release build of espalier: `cargo build --release --bin espalier`")
    load.build()
    in_process.build(sorted({program for name in names for program in PROGRAMS.get(name, ())}))
    length = Length(options.length) if options.length else Length.of(bool(options.scenarios), options.quick)
    with closing(Session(length)) as session:
        return run_scenarios(names, session, options)


def run_scenarios(names: list[str], session: Session, options) -> int:
    date, started = datetime.date.today().isoformat(), time.monotonic()
    facts, outcomes, failed = machine.facts(), [], []
    for name in names:
        if name not in SHARING:
            session.close()
        began = time.monotonic()
        try:
            outcome = SCENARIOS[name](session)
        except Exception as failure:  # A failure is reported, and the other scenarios still run.
            traceback.print_exc()
            failed.append(f"{name}: {failure!r}")
            continue
        outcome.elapsed_seconds = time.monotonic() - began
        outcome.notes += [options.note] if options.note else []
        outcome.notes += LENGTH_NOTES.get(session.length, [])
        outcomes.append(outcome)
        text = record.text(outcome, facts, date)
        print(text, flush=True)
        if not options.no_record:
            keep(outcome, text, f"{date}-{name}{SUFFIXES[session.length]}")
    REPORTS.mkdir(parents=True, exist_ok=True)
    file = REPORTS / f"{date}-{'-'.join(names) if len(names) < 3 else 'all'}.html"
    file.write_text(report.page(outcomes, facts, date))
    print(f"report: {file.relative_to(places.ROOT)}")
    print(f"{len(outcomes)} scenarios in {time.monotonic() - started:,.0f} s: "
          + ", ".join(f"{outcome.scenario} {outcome.elapsed_seconds:.0f}" for outcome in outcomes))
    return verdict(outcomes, failed, options.check)


SUFFIXES = {Length.FULL: "", Length.SHORT: "-short", Length.SMOKE: "-smoke"}
LENGTH_NOTES = {Length.SHORT: ["SHORT: shorter rounds than a record should have."],
                Length.SMOKE: ["SMOKE: says that the scenario works; rounds are too few and too short for its figures."]}


def keep(outcome: Outcome, text: str, name: str) -> None:
    """Writes a record without replacing one of the same day."""
    RECORDS.mkdir(parents=True, exist_ok=True)
    stem = record.free_stem(RECORDS, name)
    (RECORDS / f"{stem}.txt").write_text(text)
    recorded = [plot for plot in outcome.plots if plot.recorded and any(plot.series.values())]
    if recorded:
        (RECORDS / f"{stem}.svg").write_text(report.drawing(recorded))


def verdict(outcomes: list, failed: list[str], check: bool) -> int:
    missed = [f"{outcome.scenario}: {bar.line()}" for outcome in outcomes for bar in outcome.bars if not bar.reached]
    bars = sum(len(outcome.bars) for outcome in outcomes)
    print(f"{bars - len(missed)} of {bars} bars reached")
    for line in missed if check else []:
        print(line)
    for line in failed:
        print(f"failed: {line}")
    return 1 if failed or (check and missed) else 0


if __name__ == "__main__":
    sys.exit(main())
