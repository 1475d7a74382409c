.PHONY: install check test stress coverage bench docs

# What is never imported need not be compiled; the rest is, when it first is.
INSTALL = python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt

install:  ## everything a developer needs, at the versions known to work together; torch alone first
	$(INSTALL) torch
	$(INSTALL) -e '.[dev,train,hub,bert,openvino,ray,serve,report]'

check:  ## style, types, import direction, spelling
	ruff check .
	ruff format --check .
	mypy
	lint-imports
	typos

# Two processes of one thread each: with two each, torch takes 1.7 times as long for what trains.
test stress coverage: export OMP_NUM_THREADS = 1

test:  ## fast tests first, then big files, fuzzing and other slow ones
	python -m pytest -q -n 2 --dist loadfile --durations=15 -m 'not slow'
	python -m pytest -q -n 2 --dist worksteal --durations=15 -m slow

stress:  ## the slow tests at their full size: gigabytes, 200,000 hostile texts
	CAPSAR_FULL_SIZE=1 python -m pytest -q -n 2 --dist worksteal --durations=15 -m slow

coverage:  ## what the fast tests reach; it takes twice their time
	python -m pytest -q -n 2 --dist loadfile -m 'not slow' --cov=capsar --cov-fail-under=92

bench:  ## every benchmark; each writes benchmarks/results/NAME.json
	python benchmarks/reading.py
	python benchmarks/vectors.py
	python benchmarks/words.py
	python benchmarks/reviews.py
	python benchmarks/routing.py
	python benchmarks/training.py
	python benchmarks/inference.py
	python benchmarks/models.py
	python benchmarks/install.py
	python benchmarks/serve.py all base
	for part in million ratios store planning spark billion; do python benchmarks/bulk.py $$part || exit 1; done
	for kind in worker driver; do python benchmarks/bulk.py deaths $$kind local || exit 1; done
	for kind in worker driver node; do python benchmarks/bulk.py deaths $$kind ray || exit 1; done
	python benchmarks/report.py truth
	python benchmarks/report.py labelled
	python benchmarks/report.py scale

docs:  ## run what README and docs show, check their figures, and build the site
	python -m pytest -q tests/docs tests/test_docs.py tests/test_site.py
	zensical build --strict
