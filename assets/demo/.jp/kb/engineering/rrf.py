"""A minimal reciprocal rank fusion of rankings of ids."""

K = 15
WEIGHTS = {"lexical": 1.0, "semantic": 1.0}


def fuse(rankings: dict[str, list[str]]) -> list[tuple[str, float]]:
    """Return ids with their scores, best first. Equal scores are ordered by id.

    `rankings` maps the name of a ranking to its ids, best first. An id that is missing
    from a ranking counts as the last of that ranking.
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
