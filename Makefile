.PHONY: install check test integration stress coverage bench docs

# What is never imported need not be compiled; the rest is, when it first is.
INSTALL = python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt

install:  ## everything a developer needs, at the versions known to work together; torch alone first
	$(INSTALL) torch
	$(INSTALL) -e '.[analyst,dev,train,hub,bert,openvino,ray,serve]'

check:  ## style, types, import direction, spelling
	ruff check .
	ruff format --check .
	mypy
	lint-imports
	typos

# Two processes of one thread each: with two each, torch takes 1.7 times as long for what trains.
test integration stress coverage: export OMP_NUM_THREADS = 1

test:  ## fast tests first, then big files, fuzzing and other slow ones
	python -m pytest -q -n 2 --dist loadfile --durations=10 -m 'not slow and not integration'
	python -m pytest -q -n 2 --dist worksteal --durations=10 -m 'slow and not integration'

# Debian packages: debootstrap, nginx, podman, prometheus and runc, for the tests of deploy/.
integration:  ## tests with a Ray cluster, an object store, containers or a fresh environment; before a release
	python -m pytest -q --durations=10 -m integration

stress:  ## the slow tests at their full size: gigabytes, 200,000 hostile texts
	CAPSAR_FULL_SIZE=1 python -m pytest -q -n 2 --dist worksteal --durations=15 -m slow

coverage:  ## what the fast tests reach; it takes twice their time
	python -m pytest -q -n 2 --dist loadfile -m 'not slow and not integration' --cov=capsar --cov-fail-under=92

bench:  ## every benchmark; each writes benchmarks/results/NAME.json
	for part in reading vectors words reviews; do python benchmarks/text.py $$part || exit 1; done
	python benchmarks/routing.py
	python benchmarks/training.py
	for part in graphs models; do python benchmarks/inference.py $$part || exit 1; done
	python benchmarks/install.py
	python benchmarks/serve/main.py all base
	for part in million ratios store planning spark billion; do python benchmarks/bulk/main.py $$part || exit 1; done
	for part in truth labeled scale; do python benchmarks/report/main.py $$part || exit 1; done

docs:  ## render the blocks of README and docs, run what they show, and build the site
	python experiments/pages/render.py
	python -m pytest -q tests/docs tests/test_docs.py tests/test_site.py
	zensical build --strict
