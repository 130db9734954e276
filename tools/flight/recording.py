"""Reads the files of flight recorders. Their layout is that of runtime/observe/flight_layout.h; a file
may be of a running rank, of one that was killed, or cut."""
import json
import struct
import sys
from collections import namedtuple

NAME = struct.Struct("=QIIQBBBB68s")
TENSOR = struct.Struct("=QqqQQqIiBBBBB67s")
ANNOUNCEMENT = struct.Struct("=QqQII512s")
OPERATION = struct.Struct("=QQQqqqqQQIHBBBB46s")
CALL = struct.Struct("=QQ")
STEP = struct.Struct("=QQqqq")
SET = struct.Struct("=QIii4x512s")
STATE = struct.Struct("=qqii2048s")

SET_SHIFT = 40  # of Call::set_and_sequence
REFUSED = (1 << 64) - 1  # kRefusedCall, and kRefusedBytes
FAILED_AT_ONCE = "what failed there at once, for its arguments"
# Where call_fingerprint() of runtime/base/ordered_call.cc puts what: shift, bits.
COUNT, ROOT, OP, TYPE, KIND = (8, 34), (42, 12), (54, 3), (57, 4), (61, 3)

Operation = namedtuple("Operation", "number sequence fingerprint submitted agreed started ended step bytes set tensors mode "
                       "kind type name")
Step = namedtuple("Step", "number step first last ended")
# What this rank has submitted, and not all ranks have agreed on; `failed`: when it failed alone, or 0.
Open = namedtuple("Open", "set mode name kind type op root bytes step submitted failed")


def part(fingerprint, field):
    return fingerprint >> field[0] & ((1 << field[1]) - 1)


def text_of(name_bytes, name):
    return name[:name_bytes].decode(errors="replace")


def slots_of(words):
    bits = int.from_bytes(words, sys.byteorder)
    return [slot for slot in range(bits.bit_length()) if bits >> slot & 1]


class Unreadable(Exception):
    """No file of a flight recorder; says why."""


class Recording:
    """What one rank has recorded."""

    def __init__(self, path):
        self.path = path
        try:
            with open(path, "rb") as file:
                data = file.read()
        except OSError as error:
            raise Unreadable(f"{path}: {error.strerror}") from error
        try:
            about = json.loads(data[:4096].split(b"\0", 1)[0].decode())
            if about["kolo_flight"] != 1:
                raise Unreadable(f"{path}: version {about['kolo_flight']}; this tool knows version 1: take that of the kolo "
                                 "which wrote it")
        except (ValueError, KeyError, TypeError) as error:
            raise Unreadable(f"{path}: not the file of a flight recorder") from error
        self.about = about
        self.rank, self.size, self.host, self.pid = (about[key] for key in ("rank", "size", "host", "pid"))
        self.job = about["job"]
        state = next(self._rows(data, "state", STATE), (0, 0, 0, -1, b""))
        self.alive, self.failed_at, code, self.culprit, message = state
        self.code = about["codes"][code] if self.failed_at else ""
        self.message = message.split(b"\0", 1)[0].decode(errors="replace") if self.failed_at else ""
        self.operations = []
        for row in self._numbered(data, "operations", OPERATION):
            mode, kind, kolo_type, name_bytes, name = row[11:]
            self.operations.append(Operation(*row[:11], self._word("modes", mode), self._word("kinds", kind),
                                             self._word("types", kolo_type), text_of(name_bytes, name)))
        self.steps = [Step(*row) for row in self._numbered(data, "steps", STEP)]
        # By id: size, and this rank's rank in the set.
        sets = list(self._numbered(data, "sets", SET))
        self.sets = {row[1]: row[2:4] for row in sets}
        self.calls = self._calls(data)
        unagreed, self.handled = self._open_tensors(data)
        self.open = unagreed + self._open_slots(data, sets)
        self.open.sort(key=lambda one: one.submitted)

    def _word(self, words, index):
        known = self.about[words]
        return known[index] if index < len(known) else f"unknown {words}"

    def _open_tensors(self, data):
        """Those that were announced in full; messages; and what failed alone in the latest step. What failed
        alone before is a list of its own: the program went on."""
        latest, failures = {}, {}
        for (_, submitted, agreed, size, step, failed, number, root, mode, kind, kolo_type, kolo_op, name_bytes,
             name) in self._numbered(data, "tensors", TENSOR):
            one = Open(number, self._word("modes", mode), text_of(name_bytes, name), self._word("kinds", kind),
                       self._word("types", kolo_type), self._word("ops", kolo_op), root, size, step, submitted, failed)
            latest[one.set, one.mode, one.name] = one, agreed
            if failed:
                failures[one.set, one.mode, one.name] = one
        ended = max((operation.ended for operation in self.operations), default=0)
        last_step = max((operation.step for operation in self.operations), default=0)

        def counts(one):
            return one.step >= last_step if one.step else one.failed >= ended

        return ([one for one, agreed in latest.values() if (counts(one) if one.failed else not agreed)],
                [one for one in failures.values() if not counts(one)])

    def _open_slots(self, data, sets):
        names = {(row[1], row[2]): row for row in self._numbered(data, "names", NAME)}
        announced = {}
        for _, time, step, number, words, slots in self._numbered(data, "announcements", ANNOUNCEMENT):
            for slot in slots_of(slots[:8 * words]):
                announced[number, slot] = time, step
        found = []
        for _, number, _, _, slots in sets:
            for slot in slots_of(slots):
                time, step = announced.get((number, slot), (self.about["started"], 0))
                if (number, slot) not in names:
                    continue
                size, kind, kolo_type, kolo_op, name_bytes, name = names[number, slot][3:]
                found.append(Open(number, "negotiated", text_of(name_bytes, name), self._word("kinds", kind),
                                  self._word("types", kolo_type), self._word("ops", kolo_op), None, size, step, time, 0))
        return found

    def _rows(self, data, ring, form):
        offset, count, size = self.about[ring]
        for i in range(count):
            begin = offset + i * size
            if begin + form.size > len(data):
                return
            yield form.unpack_from(data, begin)

    def _numbered(self, data, ring, form):
        """Rows that are whole, the oldest first. What lies in the wrong slot is torn."""
        count = self.about[ring][1]
        rows = [row for i, row in enumerate(self._rows(data, ring, form)) if row[0] and (row[0] - 1) % count == i]
        return sorted(rows, key=lambda row: row[0])

    def _calls(self, data):
        """By process set: in-order calls, their fingerprints by number."""
        calls = {}
        for where, fingerprint in self._rows(data, "calls", CALL):
            if where:
                calls.setdefault(where >> SET_SHIFT, {})[(where & ((1 << SET_SHIFT) - 1)) - 1] = fingerprint
        for operation in self.operations:
            if operation.mode == "in-order":
                calls.setdefault(operation.set, {})[operation.sequence] = operation.fingerprint
        return calls

    def unix(self, time):
        """A steady time in seconds since 1970."""
        return (self.about["started_unix_ns"] + time - self.about["started"]) / 1e9

    def latest(self):
        """When this rank was last heard of."""
        return max(self.failed_at, self.alive, self.about["started"])

    def text(self, operation):
        """allreduce 'fc1.weight' and 3 more; or an in-order call."""
        if operation.mode == "in-order":
            return self.call_text(operation.fingerprint)
        more = f" and {operation.tensors - 1} more" if operation.tensors > 1 else ""
        return f"{operation.kind} '{operation.name}'{more}"

    def call(self, fingerprint):
        """Kind, count and type of an in-order call."""
        return (self._word("kinds", part(fingerprint, KIND)), part(fingerprint, COUNT),
                self._word("types", part(fingerprint, TYPE)))

    def call_text(self, fingerprint):
        """As to_text() of runtime/base/ordered_call.h."""
        if fingerprint == REFUSED:
            return FAILED_AT_ONCE
        kind, count, kolo_type = self.call(fingerprint)
        if kind == "barrier":
            return kind
        text = f"{kind} of {count} {kolo_type}"
        if kind == "broadcast":
            text += f" from rank {part(fingerprint, ROOT)}"
        if kind in ("allreduce", "reducescatter"):
            text += f" by {self._word('ops', part(fingerprint, OP))}"
        return text


def read_job(paths):
    """The recordings of one job, by rank; Unreadable if they are of several."""
    recordings = {}
    for path in paths:
        recording = Recording(path)
        first = next(iter(recordings.values()), recording)
        if recording.job != first.job:
            raise Unreadable(f"{first.path} and {path} are of two jobs; give the files of one, as kolo-flight.{first.job}.*")
        if recording.rank in recordings:
            raise Unreadable(f"{recordings[recording.rank].path} and {path} are both of rank {recording.rank}")
        recordings[recording.rank] = recording
    return dict(sorted(recordings.items()))
