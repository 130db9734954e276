"""What the recordings of a job's ranks say about its end: who failed or left first, at which call, and who
waited for whom. Pure functions of recordings."""
import re
import statistics
from collections import Counter

from flight.recording import FAILED_AT_ONCE, REFUSED

STEPS = 100  # the latest, by which the slowest rank is found
SILENT = 1.0  # seconds by which a rank that was lost had stopped before the others
HISTORY_BITS = 8  # of a fingerprint: earlier calls
CLEAR = 2.0  # the others wait so many times as long as the slowest rank


def ranks_text(ranks):
    ranks = sorted(ranks)
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > 8:
        return f"ranks {', '.join(map(str, ranks[:8]))} and {len(ranks) - 8} more"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def set_text(number):
    return "" if number == 0 else f" of process set {number}"


def members(recordings, number):
    return {rank for rank, recording in recordings.items() if number in recording.sets or number == 0}


def verb(ranks, one, several):
    return one if len(ranks) == 1 else several


def divergence_in_order(recordings, number):
    """The first in-order call of a process set that ranks did not make alike; None if there is none."""
    ranks = members(recordings, number)
    calls = {rank: recordings[rank].calls.get(number, {}) for rank in ranks}
    for sequence in sorted(set().union(*calls.values())):
        made = {rank: own[sequence] >> HISTORY_BITS for rank, own in calls.items() if sequence in own}
        if len(set(made.values())) < 2:
            continue
        texts = {rank: recordings[rank].call_text(calls[rank][sequence]) for rank in made}
        return {"set": number, "mode": "in-order", "number": sequence, "calls": texts, "odd": odd_ones(made)}
    return None


def odd_ones(values):
    """The ranks that differ from most; empty if neither side has most."""
    common = Counter(values.values()).most_common(2)
    if len(common) < 2 or common[0][1] == common[1][1]:
        return []
    return sorted(rank for rank, value in values.items() if value != common[0][0])


def what(one):
    """What all ranks must have alike under one name."""
    return one.kind, one.type, one.op, one.bytes if one.kind in ("allreduce", "broadcast") or one.bytes == REFUSED else 0


def text(one):
    return f"{one.kind} '{one.name}'"


def full_text(one, holders):
    """With operation and root where the holders' differ."""
    if one.bytes == REFUSED:
        return FAILED_AT_ONCE
    holders = [other for other in holders if other.bytes != REFUSED]
    op = f", {one.op}" if len({other.op for other in holders}) > 1 else ""
    root = f", root {one.root}" if len({other.root for other in holders}) > 1 and one.root is not None else ""
    return f"{text(one)} ({one.type}{op}{root}, {one.bytes} bytes)"


def by_name(tensors):
    return {(one.set, one.name): one for one in tensors if one.mode == "negotiated"}


def divergence_by_name(recordings, tensors):
    """The first tensor that ranks did not agree on: some lack it, or they differ on it. `tensors`: of each rank."""
    names = {rank: by_name(own) for rank, own in tensors.items()}
    found = sorted((one.step, recordings[rank].unix(one.submitted), key)
                   for rank, own in names.items() for key, one in own.items())
    for key in dict.fromkeys(key for _, _, key in found):
        holders = {rank: own[key] for rank, own in names.items() if key in own}
        lack = sorted(members(recordings, key[0]) - set(holders))
        # A slot of the response cache does not tell the root.
        knows_roots = all(one.root is not None for one in holders.values())
        kinds = {rank: (*what(one), one.root if knows_roots else None) for rank, one in holders.items()}
        if not lack and len(set(kinds.values())) < 2:
            continue
        texts = {rank: full_text(one, holders.values()) for rank, one in holders.items()}
        step = max(one.step for one in holders.values())
        return {"set": key[0], "mode": "negotiated", "name": key[1], "step": step, "calls": texts, "lack": lack,
                "odd": lack or odd_ones(kinds)}
    return None


def place_of(recording, operation, since):
    return {"call": recording.text(operation), "set": operation.set, "mode": operation.mode,
            "number": operation.sequence, "step": operation.step, "since": since}


def waiting_place(recording):
    """The first call that a rank has begun and not ended; None if it is in code of its own."""
    for operation in recording.operations:
        if not operation.ended:
            return place_of(recording, operation, operation.started or operation.agreed)
    for one in recording.open:
        if not one.failed:
            return {"call": text(one), "set": one.set, "mode": one.mode, "number": None, "step": one.step,
                    "since": one.submitted, "name": one.name}
    return None


def last_done(recording):
    """The latest operation and the latest in-order call that a rank has ended; small calls have no times."""
    places = []
    ended = [operation for operation in recording.operations if operation.ended and operation.mode != "in-order"]
    if ended:
        latest = max(ended, key=lambda operation: operation.ended)
        places.append(place_of(recording, latest, latest.ended))
    calls = [(sequence, number) for number, own in recording.calls.items() for sequence in own]
    if calls:
        sequence, number = max(calls)
        places.append({"call": recording.call_text(recording.calls[number][sequence]), "set": number, "mode": "in-order",
                       "number": sequence, "step": 0, "since": None})
    return places


def waited_for(recordings, place):
    """The ranks that had not come to the call in which a rank waited."""
    ranks = members(recordings, place["set"])
    if place["number"] is None:
        key = place["set"], place["name"]
        return sorted(rank for rank in ranks if key not in by_name(recordings[rank].open))
    late = []
    for rank in ranks:
        recording = recordings[rank]
        if place["mode"] == "in-order":
            is_there = place["number"] in recording.calls.get(place["set"], {})
        else:
            is_there = any((operation.set, operation.mode, operation.sequence) ==
                           (place["set"], place["mode"], place["number"]) for operation in recording.operations)
        if not is_there:
            late.append(rank)
    return late


def has_failed_itself(recording):
    return recording.failed_at != 0 or any(one.failed for one in recording.open)


def may_be_culprit(recordings, rank):
    """A rank that left for a failure of its own is no culprit, unless it has ended the job itself."""
    return rank >= 0 and (rank not in recordings or recordings[rank].culprit == rank or
                          not has_failed_itself(recordings[rank]))


def find_culprit(recordings, ended, divergence):
    """(rank, why): who ended the job, as far as anybody knows; (None, "") if nobody does."""
    # SIGABRT is also how a program ends that does not catch what it is told of another rank's failure.
    if ended is not None and ended[1].startswith("signal") and not ended[1].startswith("signal 6 "):
        return ended
    failures = [recording for recording in recordings.values() if recording.failed_at]
    named = Counter(recording.culprit for recording in failures if may_be_culprit(recordings, recording.culprit))
    if named:
        rank = named.most_common(1)[0][0]
        teller = next(recording for recording in failures if recording.culprit == rank)
        return rank, teller.message
    latest = {rank: recording.unix(recording.latest()) for rank, recording in recordings.items()}
    if len(latest) > 1:
        first, second = sorted(latest, key=latest.get)[:2]
        if latest[second] - latest[first] > SILENT and not recordings[first].failed_at:
            return first, f"it was heard of {latest[second] - latest[first]:.1f} s less long than the others"
    if divergence and len(divergence["odd"]) == 1:
        return divergence["odd"][0], ""
    return ended or (None, "")


def slowest_rank(recordings):
    """The rank that waited least for the others, by the steps, or operations, that all have recorded."""
    if len(recordings) < 2:
        return None
    what, waits = "steps", {rank: {step.step: step.ended - step.last for step in recording.steps if step.ended}
                            for rank, recording in recordings.items()}
    if any(len(own) < 2 for own in waits.values()):
        what, waits = "operations", {rank: waits_by_operation(recording) for rank, recording in recordings.items()}
    common = sorted(set.intersection(*(set(own) for own in waits.values())))[-STEPS:]
    if len(common) < 2:
        return None
    medians = {rank: statistics.median(max(0, own[key]) for key in common) / 1e6 for rank, own in waits.items()}
    slowest = min(medians, key=medians.get)
    others = min(value for rank, value in medians.items() if rank != slowest)
    return {"rank": slowest, "of": what, "count": len(common), "waited_ms": medians[slowest], "others_ms": others,
            "clear": others > CLEAR * medians[slowest], "medians_ms": medians}


def waits_by_operation(recording):
    waits = {}
    for operation in recording.operations:
        if operation.ended and operation.mode != "message":
            waits[operation.set, operation.mode, operation.sequence] = operation.ended - operation.submitted
    return waits


def verdict(recordings, ended=None):
    """Everything that is known, as JSON has it; `text` is the paragraph. `ended`: (rank, how) of the rank
    that a launcher saw end first."""
    first = next(iter(recordings.values()))
    sets = sorted(set().union(*(recording.sets for recording in recordings.values()), {0}))
    divergence = next(filter(None, (divergence_in_order(recordings, number) for number in sets)), None)
    divergence = divergence or divergence_by_name(recordings, {rank: r.open for rank, r in recordings.items()})
    handled = divergence_by_name(recordings, {rank: r.handled for rank, r in recordings.items()})
    culprit, why = find_culprit(recordings, ended, divergence)
    waits = {rank: waiting_place(recording) for rank, recording in recordings.items()}
    waits = {rank: place for rank, place in waits.items() if place is not None}
    end = max(recording.unix(recording.latest()) for recording in recordings.values())
    waiting = []
    for rank, place in waits.items():
        late = [other for other in waited_for(recordings, place) if other != rank]
        if not late and culprit is not None and culprit != rank:
            late = [culprit]
        waiting.append({"rank": rank, "call": place["call"], "set": place["set"], "mode": place["mode"],
                        "number": place["number"], "step": place["step"], "for": late,
                        "seconds": max(0.0, end - recordings[rank].unix(place["since"]))})
    result = {"job": first.job, "size": first.size, "files": {rank: r.path for rank, r in recordings.items()},
              "missing": sorted(set(range(first.size)) - set(recordings)),
              "culprit": None if culprit is None else {"rank": culprit, "why": why},
              "divergence": divergence, "handled": handled, "waiting": waiting, "slowest": slowest_rank(recordings),
              "done": {rank: last_done(recording) for rank, recording in recordings.items()},
              "failures": {rank: r.message for rank, r in recordings.items() if r.failed_at}}
    if culprit in recordings:
        result["culprit"] |= {"host": recordings[culprit].host, "pid": recordings[culprit].pid}
    result["text"] = " ".join(filter(None, (
        culprit_text(result), place_text(result), divergence_text("First divergence", divergence),
        divergence_text("A call had failed before", handled), waiting_text(result), slowest_text(result),
        missing_text(result))))
    return result


def order_text(place):
    words = [f"step {place['step']}"] if place["step"] else []
    if place["number"] is not None:
        kind = "call" if place["mode"] == "in-order" else "operation"
        words.append(f"{place['mode']} {kind} {place['number']}")
    return f" ({', '.join(words)})" if words else ""


def culprit_text(result):
    culprit = result["culprit"]
    if culprit is None:
        said = sorted(set(result["failures"].values()))
        return f"No single rank stands out. The failure: {sentence(said[0])}" if said else "No single rank stands out."
    where = f" on {culprit['host']} (pid {culprit['pid']})" if "host" in culprit else ""
    if not culprit["why"]:
        return f"Rank {culprit['rank']}{where} parted from the others."
    return f"Rank {culprit['rank']}{where} ended the job: {sentence(culprit['why'])}"


def sentence(text):
    text = re.sub(r"\s+", " ", text).strip()
    return text if text.endswith(".") else text + "."


def place_text(result):
    """Where the culprit stood."""
    rank = result["culprit"]["rank"] if result["culprit"] else None
    if rank not in result["done"]:
        return ""
    places = [one for one in result["waiting"] if one["rank"] == rank] or result["done"][rank]
    was = "It was in" if places and "rank" in places[0] else "Last it had done"
    return f"{was} {' and '.join(place['call'] + set_text(place['set']) + order_text(place) for place in places)}." if places else ""


def divergence_text(lead, divergence):
    if divergence is None:
        return ""
    by_call = {}
    for rank, call in divergence["calls"].items():
        by_call.setdefault(call, []).append(rank)
    calls = "; ".join(f"{ranks_text(ranks)} {verb(ranks, 'calls', 'call')} {call}" for call, ranks in by_call.items())
    if divergence["mode"] == "in-order":
        return f"{lead}: in-order call {divergence['number']}{set_text(divergence['set'])}: {calls}."
    step = f" of step {divergence['step']}" if divergence["step"] else ""
    lack = ""
    if divergence["lack"]:
        lack = f", and {ranks_text(divergence['lack'])} {verb(divergence['lack'], 'lacks', 'lack')} it"
        calls = calls.replace(" calls ", " has submitted ").replace(" call ", " have submitted ")
    return f"{lead}: tensor '{divergence['name']}'{step}{set_text(divergence['set'])}: {calls}{lack}."


def waiting_text(result):
    groups = {}
    for one in result["waiting"]:
        if result["culprit"] and one["rank"] == result["culprit"]["rank"]:
            continue
        groups.setdefault((one["call"], one["set"], order_text(one), tuple(one["for"])), []).append(one)
    texts = []
    for (call, number, order, late), ones in groups.items():
        ranks = [one["rank"] for one in ones]
        for_whom = f" for {ranks_text(late)}" if late else ""
        longest = max(one["seconds"] for one in ones)
        texts.append(f"{ranks_text(ranks)} waited{for_whom} in {call}{set_text(number)}{order}, {longest:.1f} s")
    text = "; ".join(texts)
    return text[:1].upper() + text[1:] + "." if text else ""


def slowest_text(result):
    slowest = result["slowest"]
    if slowest is None:
        return ""
    over = f"over the last {slowest['count']} {slowest['of']}"
    if not slowest["clear"]:
        return f"No rank was clearly the slowest {over}."
    return (f"Rank {slowest['rank']} was the slowest {over}: it waited {slowest['waited_ms']:.2f} ms for the others, who "
            f"waited {slowest['others_ms']:.2f} ms or more.")


def missing_text(result):
    missing = result["missing"]
    if not missing:
        return ""
    return (f"There {verb(missing, 'is', 'are')} no {verb(missing, 'file', 'files')} of {ranks_text(missing)}: not given, on "
            "another host, or ended in order.")
