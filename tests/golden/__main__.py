"""``python -m tests.golden --write``: renew the golden plans, after a change that means to change them."""

from __future__ import annotations

import argparse

from tests.golden.records import STORED, answer_request, format_line, request_to_data
from tests.golden.requests import choose_requests


def main() -> None:
    """Plan every request and store the answers if ``--write`` asks for it; say what changed."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.add_argument("--write", action="store_true", help="store the answers")
    options = parser.parse_args()
    old = STORED.read_text(encoding="utf-8").splitlines() if STORED.exists() else []
    new = [
        format_line({"id": name, "request": request_to_data(request), **answer_request(request)})
        for name, request in choose_requests().items()
    ]
    kept = len(set(old) & set(new))
    print(f"{len(new)} requests: {kept} answered as stored, {len(new) - kept} not")
    if options.write:
        STORED.write_text("".join(line + "\n" for line in new), encoding="utf-8")


if __name__ == "__main__":
    main()
