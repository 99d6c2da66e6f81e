"""Reciprocal rank fusion, as small as it gets: two rankings of ids, one list."""

K = 10
WEIGHTS = {"lexical": 1.0, "semantic": 0.5}


def fuse(rankings: dict[str, list[str]]) -> list[tuple[str, float]]:
    """Ids with their score, best first; equal scores by id, so the order is always the same.

    `rankings` maps a leg's name to its ids, best first. An id that a leg does not
    have counts there as that leg's last.
    """
    found = {passage for ids in rankings.values() for passage in ids}
    scores = dict.fromkeys(found, 0.0)
    for leg, ids in rankings.items():
        rank_of = {passage: rank for rank, passage in enumerate(ids, 1)}
        last = len(ids) + 1
        for passage in found:
            scores[passage] += WEIGHTS[leg] / (K + rank_of.get(passage, last))
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))


if __name__ == "__main__":
    print(fuse({"lexical": ["a", "b", "c"], "semantic": ["c", "d"]}))
