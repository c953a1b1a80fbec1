"""Judges what `sconce check --json` and `sconce explain --json` say, for scripts/test.d/check.

  check.py matrix FILE BASIS VERDICT...       one row, its verdicts, and what they stand on
  check.py same FILE FILE                     the same verdicts in both
  check.py well FILE                          nothing fails and nothing warns
  check.py finding FILE CODE KEY=TEXT...      the heaviest finding of this code; and none of others
      weight=TEXT    of this weight
      seen=TEXT      each must be in its evidence
      mend=TEXT      each must be in its mends
      not=TEXT       is in none of its mends
      said=FILE      a real error's last line is what was foretold
      began=FILE     the same, up to the symbol: the loader names the first that it comes to
      also=CODE      findings of this code may come along
  check.py cause FILE CODE                    the first cause of an explanation
  check.py mend FILE CODE                     prints what its first command asks pip for
"""

import json
import sys

from checks import stop


def read(path):
    with open(path) as file:
        return json.load(file)


def verdicts(path):
    (row,) = read(path)["rows"]
    return [cell["verdict"] for cell in row["cells"]]


def basis(cell):
    """`bytes`, or `table` of whatever certainty."""
    basis = cell["basis"]
    return basis if isinstance(basis, str) else next(iter(basis))


def matrix(path, wanted_basis, *wanted):
    said = read(path)
    (row,) = said["rows"]
    for machine, cell, verdict in zip(said["machines"], row["cells"], wanted, strict=True):
        if (cell["verdict"], basis(cell)) != (verdict, wanted_basis):
            stop(machine, "is", cell, "and not", verdict, "by", wanted_basis)


def same(one, other):
    if verdicts(one) != verdicts(other):
        stop(verdicts(one), "and", verdicts(other))


def heavy(path):
    findings = read(path)["findings"]
    return [one for one in findings if one["weight"] != "notes"]


def well(path):
    if found := heavy(path):
        stop(json.dumps(found, indent=1))


def one(path, code):
    """The heaviest finding of this code; they come in that order."""
    found = [finding for finding in heavy(path) if finding["code"] == code]
    if not found:
        stop("no", code, json.dumps(heavy(path), indent=1))
    return found[0]


def last_line(path):
    with open(path) as file:
        lines = [line.strip() for line in file if line.strip()]
    return lines[-1] if lines else ""


def leaves(value):
    """All texts of a document."""
    match value:
        case dict():
            return [text for one in value.values() for text in leaves(one)]
        case list():
            return [text for one in value for text in leaves(one)]
        case _:
            return [str(value)]


def finding(path, code, *keys):
    found = one(path, code)
    shown = json.dumps(found, indent=1)
    mends = " ".join(leaves(found.get("mends", [])))
    places = ("source", "place", "value")
    evidence = [" ".join(one[place] for place in places if place in one) for one in found["evidence"]]
    also = {code}
    for key in keys:
        name, text = key.split("=", 1)
        foretold = found.get("error-text", "")
        match name:
            case "weight":
                right = found["weight"] == text
            case "seen":
                right = any(text in one for one in evidence)
            case "mend":
                right = text in mends
            case "not":
                right = text not in mends
            case "said":
                right = foretold == last_line(text)
            case "began":
                until = foretold.rindex("symbol: ") if "symbol: " in foretold else -2
                right = last_line(text).startswith(foretold[:until])
            case "also":
                also.add(text)
                right = True
        if not right:
            real = f"\nreally: {last_line(text)}" if name in ("said", "began") else ""
            stop(f"not {key}: {shown}{real}")
    if others := [one for one in heavy(path) if one["code"] not in also]:
        stop("besides:", json.dumps(others, indent=1))


def cause(path, code):
    causes = [one["code"] for one in read(path)["causes"]]
    if causes[:1] != [code]:
        stop("it is", causes, "and not", code)


def mend(path, code):
    commands = [one["action"]["command"]["line"] for one in one(path, code)["mends"] if "command" in one.get("action", {})]
    print(commands[0].split()[-1])


if __name__ == "__main__":
    verbs = {verb.__name__: verb for verb in (matrix, same, well, finding, cause, mend)}
    verbs[sys.argv[1]](*sys.argv[2:])
