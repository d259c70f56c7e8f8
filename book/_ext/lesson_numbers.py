"""Numbers the lessons from 0, as their file names do; Sphinx counts chapters from 1."""

from docutils import nodes
from sphinx.environment import BuildEnvironment
from sphinx_external_toc.collectors import TocTreeCollectorWithStyles as Collector


def setup(app):
    """Change the collector of section numbers, on which those of figures and equations depend."""
    Collector.assign_section_numbers = from_zero(Collector.assign_section_numbers)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def from_zero(assign):
    """Return the method `assign` of a collector, with the number of each chapter one less."""

    def assign_from_zero(self, env: BuildEnvironment) -> list[str]:
        changed = assign(self, env)
        for name, numbers in env.toc_secnumbers.items():
            for anchor, number in numbers.items():
                numbers[anchor] = number and (number[0] - 1, *number[1:])
            for node in (env.titles[name], *env.tocs[name].findall(nodes.reference)):
                if number := node.get("secnumber"):
                    node["secnumber"] = [number[0] - 1, *number[1:]]
        return changed

    return assign_from_zero
