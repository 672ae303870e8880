"""python -m bench.harness [--quick] [--check] [--note TEXT] [--no-record] [SCENARIO ...]

Runs scenarios against Espalier and Cassandra, prints tables and bars, writes a record per scenario to bench/record/ (of a quick run apart from
that of a full one) and one report to bench/out/. With --check the exit status is 1 when a bar is missed.
"""

import argparse
import datetime
import sys
import traceback

from bench.harness import load, machine, record, report, servers
from bench.harness.scenarios import SCENARIOS
from proof import places

RECORDS = places.ROOT / "bench" / "record"
REPORTS = places.ROOT / "bench" / "out"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--check", action="store_true", help="exit status 1 when a bar is missed")
    parser.add_argument("--note", default="", help="goes into the record")
    parser.add_argument("--no-record", action="store_true", help="leave bench/record/ as it is")
    parser.add_argument("scenarios", nargs="*")
    options = parser.parse_args()
    names = options.scenarios or list(SCENARIOS)
    for name in names:
        if name not in SCENARIOS:
            sys.exit(f"bench: {name}: there is no such scenario; there are {', '.join(SCENARIOS)}")
    if not servers.binary_is_there():
        sys.exit("bench: no release build of espalier: `cargo build --release --bin espalier`")
    load.build()
    return carry_out(names, options)


def carry_out(names: list[str], options) -> int:
    date = datetime.date.today().isoformat()
    facts, outcomes, failed = machine.facts(), [], []
    for name in names:
        try:
            outcome = SCENARIOS[name](options.quick)
        except (load.WrongAnswers, RuntimeError, OSError) as failure:
            traceback.print_exc()
            failed.append(f"{name}: {failure}")
            continue
        outcome.notes += [options.note] if options.note else []
        outcome.notes += ["QUICK: fewer and shorter rounds than a record should have."] if options.quick else []
        outcomes.append(outcome)
        text = record.text(outcome, facts, date)
        print(text, flush=True)
        if not options.no_record:
            RECORDS.mkdir(parents=True, exist_ok=True)
            record_name = f"{date}-{name}{'-quick' if options.quick else ''}"
            (RECORDS / f"{record_name}.txt").write_text(text)
            recorded = [plot for plot in outcome.plots if plot.recorded and any(plot.series.values())]
            if recorded:
                (RECORDS / f"{record_name}.svg").write_text(report.drawing(recorded))
    REPORTS.mkdir(parents=True, exist_ok=True)
    file = REPORTS / f"{date}-{'-'.join(names) if len(names) < 3 else 'all'}.html"
    file.write_text(report.page(outcomes, facts, date))
    print(f"report: {file.relative_to(places.ROOT)}")
    return verdict(outcomes, failed, options.check)


def verdict(outcomes: list, failed: list[str], check: bool) -> int:
    missed = [f"{outcome.scenario}: {bar.line()}" for outcome in outcomes for bar in outcome.bars if not bar.reached]
    for line in missed if check else []:
        print(line)
    for line in failed:
        print(f"failed: {line}")
    return 1 if failed or (check and missed) else 0


if __name__ == "__main__":
    sys.exit(main())
