"""Judges the documents that crates/sconce-image/examples/documents.rs wrote: sbom.py LOCK FOLDER"""

import json
import pathlib
import sys

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from spdx_tools.spdx.parser.parse_anything import parse_file
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

try:
    import tomllib
except ModuleNotFoundError:  # before Python 3.11, pip brings its own
    from pip._vendor import tomli as tomllib

lock = tomllib.loads(pathlib.Path(sys.argv[1]).read_text())
folder = pathlib.Path(sys.argv[2])
wheels = [("pypi", None, w["name"], w["version"], w["sha256"]) for w in lock.get("wheel", [])]
debs = [("deb", "debian", d["name"], d["version"], d["sha256"]) for d in lock.get("deb", [])]
locked = sorted(wheels + debs, key=str)


def parts(purl, sha256):
    read = PackageURL.from_string(purl)
    if read.type == "deb":
        distribution = lock["target"]["release"].partition("/")[2]
        assert read.qualifiers["distro"] == distribution, purl
        assert read.qualifiers["arch"] in ("all", lock["target"]["architecture"]), purl
    return (read.type, read.namespace, read.name, read.version, sha256)


def same(what, found):
    found = sorted(found, key=str)
    assert found == locked, f"{what}: {set(found) ^ set(locked)}"


for name in ("cyclonedx.json", "cyclonedx-inside.json"):
    text = (folder / name).read_text()
    wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    assert wrong is None, f"{name}: {wrong}"
    components = json.loads(text)["components"]
    same(name, [parts(c["purl"], c["hashes"][0]["content"]) for c in components])

for name in ("spdx.json", "spdx-inside.json"):
    document = parse_file(str(folder / name))
    wrong = validate_full_spdx_document(document, "SPDX-2.3")
    assert not wrong, f"{name}: {[w.validation_message for w in wrong]}"
    packages = [p for p in document.packages if p.spdx_id != "SPDXRef-Image"]
    same(name, [parts(p.external_references[0].locator, p.checksums[0].value) for p in packages])
    assert len(document.relationships) == len(packages) + 1, name

statement = json.loads((folder / "provenance.json").read_text())
assert statement["_type"] == "https://in-toto.io/Statement/v1"
assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
resolved = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
same("provenance.json", [parts(r["uri"], r["digest"]["sha256"]) for r in resolved])

print(f"{sys.argv[1]}: {len(locked)} packages, five documents are what their formats ask for")
