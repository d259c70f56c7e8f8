"""Highlights CUDA sources, which lessons keep in Python strings."""

import re

from pygments.lexers import CudaLexer, PythonLexer
from pygments.token import String

SOURCE = re.compile(r'(?<=""")[^"]*?__(?:global|device)__.*?(?=""")', re.DOTALL)


class PythonWithCuda(PythonLexer):
    """Python, with the colours of CUDA inside strings that define a kernel or a device function."""

    def get_tokens_unprocessed(self, text, stack=("root",)):
        sources = list(SOURCE.finditer(text))
        for index, kind, value in super().get_tokens_unprocessed(text, stack):
            if kind not in String or not any(s.start() <= index < s.end() for s in sources):
                yield index, kind, value
            for source in sources:
                if index <= source.start() < index + len(value):
                    for place, *token in CudaLexer().get_tokens_unprocessed(source[0]):
                        yield source.start() + place, *token


def setup(app):
    app.add_lexer("python", PythonWithCuda)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
