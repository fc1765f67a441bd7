# An image that shows what driftline does, and runs its commands:
#   docker build -t driftline . && docker run --rm driftline
#   docker run --rm -v "$PWD:/work" driftline ingest in/ --into shop.orders
FROM python:3.12-slim

WORKDIR /build
COPY requirements/local.txt requirements/build.txt requirements/
RUN pip install --no-cache-dir --require-hashes -r requirements/local.txt -r requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
# What builds the package is pinned like the rest, so nothing is fetched for it here.
RUN pip install --no-cache-dir --no-deps --no-build-isolation . && rm -rf /build/*

RUN useradd --create-home --uid 1000 driftline && mkdir /work && chown driftline /work
USER driftline
WORKDIR /work
# The demo fetches Java's libraries of Iceberg, which the image has from then on.
RUN driftline demo > /dev/null

ENTRYPOINT ["driftline"]
CMD ["demo"]
