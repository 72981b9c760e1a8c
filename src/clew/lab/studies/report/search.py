"""The report of a search for a learning rate and an entropy cost."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from clew.lab.grid.results import Row
from clew.lab.studies.report.costs import provenance
from clew.lab.studies.report.data import StudyData
from clew.lab.studies.report.tables import MISSING, shade
from clew.lab.studies.search import Search, Tried
from clew.report.document import Block, Cell, Heading, Table, Text, counted, tabulate
from clew.report.figures import Styles


@dataclass(frozen=True)
class SearchReport:
    """What a report says about a study's search."""

    search: Search
    score: str
    """The name of the score."""
    digits: int
    """Decimals of a mean score."""
    about: Callable[[StudyData, Sequence[Row]], str]
    """A sentence on what was run and what was published."""
    note: str
    """How the best pairs are chosen."""
    published: Callable[[StudyData], Mapping[str, tuple[float, float]]] | None = None
    """The learning rate and entropy cost of each agent's published configuration."""
    shaded: bool = False
    """Shade the scores, which are then between 0 and 1."""

    def blocks(self, data: StudyData, styles: Styles, note: str) -> list[Block]:
        """The blocks of a search's folder; without charts, styles are not used."""
        shown = data.of_one_budget()
        found = {model: self.search.tried(shown.rows, model) for model in data.models}
        found = {model: pairs for model, pairs in found.items() if pairs}
        return [
            Heading(data.name, 1, data.slug),
            Text(self.about(data, shown.rows)),
            *(Text(sentence) for sentence in data.not_shown(shown)),
            self._best(data, found),
            *(self._pairs(data, model, pairs) for model, pairs in found.items()),
            provenance(shown, note),
        ]

    def _best(self, data: StudyData, found: Mapping[str, Sequence[Tried]]) -> Table:
        rows, published = [], self.published(data) if self.published else {}
        for model, pairs in found.items():
            best = pairs[0]
            below = (counted(best.trainings, "training"),)
            mean = Cell(f"{best.mean:.{self.digits}f}", below)
            rows.append([model, _pair_text(best.pair), mean])
            if published:
                used = published.get(model)  # None for an added memory
                means = [pair.mean for pair in pairs if pair.pair == used]
                its = Cell(f"{means[0]:.{self.digits}f}") if means else MISSING
                rows[-1] += [_pair_text(used) if used else MISSING, its]
        heads = ["agent", "best here", self.score]
        heads += ["authors' configuration", f"its {self.score}"] if published else []
        title = "Learning rate and entropy cost, chosen as published"
        return tabulate(f"{data.slug}-best", title, heads, rows, self.note)

    def _pairs(self, data: StudyData, model: str, tried: Sequence[Tried]) -> Table:
        """Every pair of an agent: learning rates in rows, entropy costs in columns."""
        found = {each.pair: each for each in tried}
        rows = []
        for rate in self.search.learning_rates:
            pairs = [found.get((rate, cost)) for cost in self.search.entropy_costs]
            rows.append([f"rate {rate:g}", *map(self._mean, pairs)])
        columns = [model, *(f"entropy {cost:g}" for cost in self.search.entropy_costs)]
        records = [each._asdict() for each in tried]
        return tabulate(f"{data.slug}-{model}", model, columns, rows, "", records)

    def _mean(self, pair: Tried | None) -> Cell:
        if pair is None:
            return MISSING
        return Cell(f"{pair.mean:.2f}", shade=shade(pair.mean) if self.shaded else None)


def _pair_text(pair: tuple[float, float]) -> str:
    return f"{pair[0]:g}, {pair[1]:g}"
