"""Decodes a profile of OpenTelemetry with the protocol's own library, and checks the rules of its `profcheck`.

Prints the folded stacks: the process's name, the functions, the sum of values.
"""

import sys
from collections import Counter

from google.protobuf import json_format
from opentelemetry.proto.profiles.v1development import profiles_pb2

with open(sys.argv[1], "rb") as file:
    content = file.read()
if sys.argv[1].endswith(".json"):
    data = json_format.Parse(content, profiles_pb2.ProfilesData())
else:
    data = profiles_pb2.ProfilesData.FromString(content)
tables = data.dictionary
used = {name: {0} for name in ("mapping", "location", "function", "link", "string", "attribute", "stack")}
rows = {name: getattr(tables, name + "_table") for name in used}


def row(name, index):
    assert 0 <= index < len(rows[name]), f"{name} {index} of {len(rows[name])}"
    used[name].add(index)
    return rows[name][index]


for name, table in rows.items():
    assert len(table) > 0, f"{name}: empty"
    first = table[0]
    assert first == ("" if name == "string" else type(first)()), f"{name}: row 0 is not empty"
    seen = [entry if name == "string" else entry.SerializeToString() for entry in table]
    assert len(set(seen)) == len(seen), f"{name}: the same row twice"


def attributes(indices):
    found = {}
    for index in indices:
        entry = row("attribute", index)
        assert entry.HasField("value") and entry.value.WhichOneof("value"), "an attribute without a value"
        key = row("string", entry.key_strindex)
        assert key and key not in found, f"key {key!r}"
        row("string", entry.unit_strindex)
        found[key] = entry.value
    return found


def functions(location):
    mapping = row("mapping", location.mapping_index)
    assert mapping.memory_start < mapping.memory_limit or mapping.memory_start == mapping.memory_limit == 0
    row("string", mapping.filename_strindex)
    attributes(mapping.attribute_indices)
    attributes(location.attribute_indices)
    for line in location.lines:
        assert line.line >= 0 and line.column >= 0
        function = row("function", line.function_index)
        assert function.start_line >= 0
        row("string", function.filename_strindex)
        row("string", function.system_name_strindex)
        yield row("string", function.name_strindex)


folded = Counter()
for of_resource in data.resource_profiles:
    assert of_resource.HasField("resource")
    resource = {attribute.key: attribute.value for attribute in of_resource.resource.attributes}
    process = resource["process.executable.name"].string_value
    assert resource["service.name"].string_value == process
    for of_scope in of_resource.scope_profiles:
        assert of_scope.scope.name == "flametop"
        for profile in of_scope.profiles:
            assert profile.HasField("sample_type") and profile.HasField("period_type")
            assert row("string", profile.sample_type.type_strindex) and row("string", profile.sample_type.unit_strindex)
            row("string", profile.period_type.type_strindex)
            row("string", profile.period_type.unit_strindex)
            assert profile.samples
            shapes, identities = set(), set()
            for sample in profile.samples:
                assert len(attributes(sample.attribute_indices)) == len(sample.attribute_indices)
                row("link", sample.link_index)
                identity = (sample.stack_index, tuple(sorted(sample.attribute_indices)), sample.link_index)
                assert identity not in identities, "two samples that should be one"
                identities.add(identity)
                values, times = len(sample.values), len(sample.timestamps_unix_nano)
                shapes.add("times" if not values else "values" if not times else "both")
                assert values == times or not values or not times and values == 1
                for time in sample.timestamps_unix_nano:
                    assert profile.time_unix_nano <= time < profile.time_unix_nano + profile.duration_nano
                stack = row("stack", sample.stack_index)
                names = [name for index in stack.location_indices for name in functions(row("location", index))]
                folded[";".join([process, *reversed(names)])] += sum(sample.values) if values else times
            assert len(shapes) == 1, shapes
for name, table in rows.items():
    orphans = set(range(len(table))) - used[name]
    assert not orphans, f"{name}: rows that nothing refers to: {[str(table[index]) for index in orphans]}"
for stack, count in folded.items():
    print(stack, count)
