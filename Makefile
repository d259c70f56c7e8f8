# make demo      train a small DynamicConv on German-English text, translate, score: seven minutes
# make test      check everything, one process per core
# make book      the lessons as pages, in book/_build/html; make serve shows them;
#                LINKS=--links checks the addresses in them instead
# make jupyter   the lessons in JupyterLab
# make lessons   run those whose text has changed, and store their outputs
# make map       the tables of modules at the end of ARCHITECTURE.md, from the docstrings
# make student   the lessons without solutions, in student/, to work in; it says how to open them
#
# All work from a bare clone: they make .venv first, from constraints.txt.
#
# On Linux the torch of PyPI brings gigabytes of CUDA. For a laptop without a GPU take the CPU build:
#     make test TORCH_INDEX=https://download.pytorch.org/whl/cpu

PYTHON ?= python3
TORCH_INDEX ?=
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: demo test book serve jupyter lessons map student clean .venv

demo: .venv
	.venv/bin/dynconv train help-de-en-dynamic --run runs/demo
	.venv/bin/dynconv evaluate runs/demo
	.venv/bin/dynconv plot runs/demo
	@echo "To translate: echo 'Klicken Sie auf das Symbol.' | .venv/bin/dynconv translate runs/demo"

# Where PYTHONDONTWRITEBYTECODE is set, as in many containers, each of the processes that the tests
# start would compile the package anew.
test: export PYTHONDONTWRITEBYTECODE =
test: .venv
	.venv/bin/ruff check .
	.venv/bin/python -m pytest -q -n logical --maxprocesses=8

book: .venv
	.venv/bin/python -m dynconv.teach.book $(LINKS)

serve: book
	.venv/bin/python -m http.server --bind 127.0.0.1 --directory book/_build/html

jupyter: .venv
	.venv/bin/python book/_jupyter/lab.py

lessons: .venv
	.venv/bin/python -m dynconv.teach.lessons run

map: .venv
	.venv/bin/python tests/helpers/module_map.py

student: .venv
	.venv/bin/python -m dynconv.teach.lessons student

.venv: .venv/installed

# torch goes first and alone, so that TORCH_INDEX serves nothing else and the second line finds
# torch there already, in the version that constraints.txt names.
.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	    { echo 'dynconv needs Python 3.11 or newer; name one: make PYTHON=python3.11' >&2; exit 1; }
	$(PYTHON) -m venv .venv
	.venv/bin/pip install -q --no-deps -c constraints.txt $(TORCH_INDEX:%=--index-url %) torch
	.venv/bin/pip install -q -c constraints.txt -e '.[lessons,test,nvrtc]'
	touch $@

# runs/ stays, because making it again takes training.
clean:
	rm -rf .venv .pytest_cache .ruff_cache .mypy_cache book/_build student dist
