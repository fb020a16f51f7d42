"""Recomputes scorecards from measurements, by the specification's tables, in exact fractions. Prints one JSON list."""

import json
import sys
from fractions import Fraction

WEIGHTS = {"quality": Fraction(35, 100), "safety": Fraction(30, 100), "cost": Fraction(20, 100), "compliance": Fraction(15, 100)}
GRADES = [(90, "A"), (80, "B"), (70, "C"), (60, "D")]


def average(values):
    return sum(values, Fraction(0)) / len(values) if values else None


def two_digits(value):
    """To the nearest hundredth, halves upwards."""
    return None if value is None else Fraction(int(value * 100 + Fraction(1, 2)), 100)


def grade(score):
    if score is None:
        return None
    return next((name for least, name in GRADES if score >= least), "F")


def number(value):
    return None if value is None else float(value)


def fraction(value):
    """The decimal that the JSON shows."""
    return Fraction(str(value))


def metric(name, unit, value, threshold, score_of, is_met, source="slipway", at_least=False):
    threshold = None if threshold is None else Fraction(threshold)
    score = status = None
    if value is not None:
        score = min(Fraction(100), max(Fraction(0), score_of(value, threshold)))
        met = score >= 60 if threshold is None else is_met(value, threshold)
        status = "ok" if met else "critical" if score < 60 else "warning"
    return {"name": name, "unit": unit, "value": value, "threshold": threshold, "score": score, "status": status, "source": source, "at_least": at_least}


def lower(name, unit, value, threshold, **more):
    return metric(name, unit, value, threshold, lambda v, t: Fraction(100) if v <= t else 100 * t / v, lambda v, t: v <= t, **more)


def percent(name, value, threshold, **more):
    return metric(name, "percent", value, threshold, lambda v, t: v, lambda v, t: v >= t, **more)


def scorer(name, score, threshold):
    if score is None or not 0 <= score["mean"] <= 1:
        return percent(name, None, threshold)
    return percent(name, fraction(score["mean"]) * 100, threshold, source=score["source"])


def share(part):
    return Fraction(100 * part["count"], part["of"]) if part and part["of"] > 0 else None


def buckets(bounds, counts):
    return list(zip([0] + bounds, bounds + [None], counts))


def mean_latency(bounds, counts):
    total = sum(counts)
    if total == 0:
        return None, False
    middle = sum(count * (Fraction(low) if high is None else Fraction(low + high, 2)) for low, high, count in buckets(bounds, counts))
    return middle / total, counts[-1] > 0


def average_latency(bounds, usage):
    took = usage["took"]
    if took and took["of"] > 0 and took["of"] == sum(usage["latency"]):
        return Fraction(took["count"], took["of"]), False
    return mean_latency(bounds, usage["latency"])


def p95(bounds, counts):
    left = Fraction(95, 100) * sum(counts)
    for low, high, count in buckets(bounds, counts):
        if count and count >= left:
            return [low, True] if high is None else [float(low + (high - low) * left / count), False]
        left -= count
    return None


def card(agent, bounds):
    usage = agent["usage"]
    asked = usage if usage and usage["requests"] > 0 else None
    of = lambda make: None if asked is None else make(asked)
    latency, is_open = average_latency(bounds, asked) if asked else (None, False)
    spent = usage["cost_micros"] if usage and (asked or usage["input_tokens"] + usage["output_tokens"] > 0) else None
    least, floor = agent["min_score"], agent["safety_floor"]
    blocked = of(lambda u: min(Fraction(100), Fraction(100 * u["guard_blocks"], u["requests"])))
    audited = of(lambda u: share(u["audited"]))
    groups = {
        "quality": [
            [scorer("correctness/mean", agent["correctness"], least), scorer("relevance_to_query/mean", agent["relevance_to_query"], least)],
            [percent("source_citation_rate", of(lambda u: share(u["cited"])), least)],
            [scorer("factual_accuracy", agent["factual_accuracy"], least)],
        ],
        "safety": [
            [scorer("safety/mean", agent["safety"], None if floor is None else fraction(floor) * 100)],
            [metric("guard_block_rate", "percent", blocked, None, lambda v, t: 100 - v, None)],
            [lower("pii_detection_count", "count", of(lambda u: Fraction(u["pii"])), 5)],
            [lower("injection_attempt_count", "count", of(lambda u: Fraction(u["injections"])), 2)],
        ],
        "cost": [
            [lower("avg_tokens_per_request", "tokens", of(lambda u: Fraction(u["input_tokens"] + u["output_tokens"], u["requests"])), 1500)],
            [lower("avg_latency_ms", "ms", latency, 1000, at_least=is_open)],
            [lower("estimated_daily_cost_usd", "usd", None if spent is None else Fraction(spent, 10**6), 5)],
        ],
        "compliance": [
            [lower("policy_violation_count", "count", of(lambda u: Fraction(u["violations"])), 2)],
            [metric("audit_coverage_pct", "percent", audited, 85, lambda v, t: 100 * v / t, lambda v, t: v >= t)],
        ],
    }
    scores, coverage, answer, missing, sources = {}, Fraction(0), {}, [], set()
    for name, parts in groups.items():
        of_groups = [average([it["score"] for it in part if it["score"] is not None]) for part in parts]
        scores[name] = average([score for score in of_groups if score is not None])
        coverage += WEIGHTS[name] * average([Fraction(sum(it["score"] is not None for it in part), len(part)) for part in parts])
        metrics = [it for part in parts for it in part]
        missing += [it["name"] for it in metrics if it["value"] is None]
        sources |= {it["source"] for it in metrics if it["value"] is not None}
        shown = two_digits(scores[name])
        numbers = ["value", "threshold", "score"]
        metrics = [{key: number(value) if key in numbers else value for key, value in it.items()} for it in metrics]
        answer[name] = {"score": number(shown), "grade": grade(shown), "metrics": metrics}
    known = {name: score for name, score in scores.items() if score is not None}
    overall = None
    if known:
        overall = two_digits(sum(WEIGHTS[name] * score for name, score in known.items()) / sum(WEIGHTS[name] for name in known))
    mean, mean_is_open = average_latency(bounds, usage) if usage else (None, False)
    ended = usage["requests"] - (usage["unknown"] or 0) if usage else 0
    answer.update(
        overall=number(overall),
        grade=grade(overall),
        coverage=float(two_digits(coverage)),
        not_measured=missing,
        data_source="mlflow" if "mlflow" in sources else "slipway",
        average=None if mean is None else [float(mean), mean_is_open],
        p95=p95(bounds, usage["latency"]) if usage else None,
        error_rate=float(Fraction(100 * usage["errors"], ended)) if ended > 0 else None,
    )
    return answer


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        given = json.load(file)
    json.dump([card(agent, given["bounds"]) for agent in given["agents"]], sys.stdout)


main()
