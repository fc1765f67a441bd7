# An image that shows what driftline does, and runs its commands:
#   docker build -t driftline . && docker run --rm driftline
#   docker run --rm -v "$PWD:/work" driftline ingest in/ --into shop.orders
# 260 MB less, for whoever has no DuckLake and no `query --engine duckdb`:
#   docker build --build-arg WITHOUT='*duckdb*' -t driftline .
FROM python:3.12-slim AS built

RUN apt-get update && apt-get install --yes --no-install-recommends binutils
WORKDIR /build
COPY requirements/local.txt requirements/build.txt requirements/leave-out.sh requirements/
RUN python -m venv --without-pip /opt/driftline \
    && pip --python /opt/driftline install --no-cache-dir --require-hashes -r requirements/local.txt \
    && pip install --no-cache-dir --require-hashes -r requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
# What builds the package is pinned like the rest, so nothing is fetched for it here.
RUN pip wheel --no-deps --no-build-isolation . && pip --python /opt/driftline install --no-deps --no-build-isolation *.whl
# The image has what is used of all that: its own system's code, without the names that debuggers want.
ARG WITHOUT=
RUN cd /opt/driftline/lib/python*/site-packages \
    && sh /build/requirements/leave-out.sh . \
    && find pyarrow fastavro yaml pyroaring*.so -name '*.so*' -exec strip --strip-unneeded {} + \
    && rm -rf $WITHOUT

FROM python:3.12-slim

COPY --from=built /opt/driftline /opt/driftline
ENV PATH=/opt/driftline/bin:$PATH
RUN useradd --create-home --uid 1000 driftline && mkdir /work && chown driftline /work
USER driftline
WORKDIR /work
# The demo fetches Java's libraries of Iceberg, which the image has from then on.
RUN driftline demo > /dev/null

ENTRYPOINT ["driftline"]
CMD ["demo"]
