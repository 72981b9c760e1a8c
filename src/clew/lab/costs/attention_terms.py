"""What each kind of attention costs in a step, term by term, as it is written in the library."""

from clew.lab.costs.terms import Term, term


def window_terms(
    *, relative: bool, norm: bool, query_norm: bool = True, gradient: str = "full"
) -> list[Term]:
    """Softmax attention over a ring of cached keys and values, `WindowAttention`.

    The norm of the input is written twice in the code, for the keys and values and for the query
    (the compiler computes it once), and is counted twice. The distances' projection depends on the
    parameters alone, so that a batch of environments shares it. The query is scaled twice, with
    either bias.

    With `gradient="current"` the input's own key and value are projected twice more, so that a zero
    with their gradient can be added.
    """
    terms = [
        term("products", "query, key and value", 3, "d H d_h"),
        term("products", "scores of the contents", 1, "S H d_h"),
        term("products", "weighted sum of the values", 1, "S H d_h"),
        term("products", "output", 1, "H d_h d"),
        term("elementwise", "scale of the queries", 2, "H d_h"),
        term("floats", "stored inputs", 1, "S d"),
        term("floats", "their keys and values", 2, "S H d_h"),
        term("integers", "slot and length", 2, ""),
    ]
    if relative:
        terms.append(term("products", "scores of the distances", 1, "S H d_h"))
        terms.append(term("shared", "projection of the distances", 1, "S d H d_h"))
    if norm:
        terms.append(term("elementwise", "norm", 6 if query_norm else 3, "d"))
    if gradient == "current":
        terms.append(term("products", "own key and value, twice again", 4, "d H d_h"))
        terms.append(term("elementwise", "own score and value", 2, "H d_h"))
        if norm:
            terms.append(term("elementwise", "norm, twice again", 6, "d"))
    return terms


def reprojection_terms(*, norm: bool) -> list[Term]:
    """Projecting every stored input again, which a step without cached keys and values must do."""
    terms = [term("products", "keys and values of all stored inputs", 2, "S d H d_h")]
    if norm:
        terms.append(term("elementwise", "norm of all stored inputs", 3, "S d"))
    return terms


def linear_terms(*, norm: bool) -> list[Term]:
    """Attention with elu + 1 in the softmax's place, `LinearAttention`."""
    terms = [
        term("products", "query, key and value", 3, "d H d_h"),
        term("products", "C q", 1, "H d_h d_h"),
        term("products", "output", 1, "H d_h d"),
        term("elementwise", "v (x) k", 1, "H d_h d_h"),
        term("elementwise", "s . q", 1, "H d_h"),
        term("elementwise", "elu of query and key", 2, "H d_h"),
        term("floats", "C", 1, "H d_h d_h"),
        term("floats", "s", 1, "H d_h"),
    ]
    return [*terms, term("elementwise", "norm", 3, "d")] if norm else terms


def relit_terms(*, decay: str, query: str) -> list[Term]:
    """Linear attention with gates on keys and on values, `GatedLinearAttention`.

    Either decay costs one multiplication for each element of C: (1 - beta) (1 - gamma), or
    beta gamma.
    """
    assert decay in ("separate", "joint")
    return [
        *_feature_terms(query),
        term("products", "C q", 1, "eta H d_h d_h"),
        term("elementwise", "decay of C", 1, "eta H d_h d_h"),
        term("elementwise", "decayed C", 1, "eta H d_h d_h"),
        term("elementwise", "v (x) k", 1, "eta H d_h d_h"),
        term("elementwise", "decayed s, s . q", 2, "eta H d_h"),
        term("floats", "C", 1, "eta H d_h d_h"),
        term("floats", "s", 1, "eta H d_h"),
    ]


def arelit_terms() -> list[Term]:
    """The same with V pairs of vectors in the place of C, `ApproximateLinearAttention`.

    The normaliser s is the key vector of frequency 0, unless there is none (`code`), when it is a
    vector more: K = V + 1.
    """
    return [
        *_feature_terms("single"),
        term("elementwise", "decayed keys, new keys, k . q", 3, "K eta H d_h"),
        term("elementwise", "decayed values, new values, sum", 3, "V H d_h"),
        term("elementwise", "weights", 1, "V H"),
        term("floats", "key vectors", 1, "K eta H d_h"),
        term("floats", "value vectors", 1, "V H d_h"),
        term("integers", "tick", 1, ""),
    ]


def _feature_terms(query: str) -> list[Term]:
    """Keys, queries, values and gates with their learned maps, `GatedFeatures`, norm included."""
    double = query == "double"
    terms = [
        term("products", "query, key, value, beta, gamma", 5, "d H d_h"),
        term("products", "maps", 2 if double else 3, "d H eta"),
        term("products", "output", 1, "H d_h d"),
        term("elementwise", "norm", 3, "d"),
        term("elementwise", "outer products, gamma k", 4, "eta H d_h"),
        term("elementwise", "beta v", 1, "H d_h"),
    ]
    if double:
        terms.append(term("products", "query, a second time", 1, "H d_h d_h"))
        terms.append(term("products", "map of the query", 1, "H d_h eta"))
    return terms
