# The service, and the command line. Nothing in it needs root, and nothing outside /data and /tmp is written.
#   docker build --tag diagnose .
FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY diagnose diagnose
COPY rules rules
COPY prompts prompts
RUN python -m venv /opt/diagnose && \
    /opt/diagnose/bin/pip install --no-cache-dir ".[fast,llm,memory,postgres,service,otel]"

FROM python:3.12-slim
RUN useradd --system --uid 10001 --home-dir /data --shell /usr/sbin/nologin diagnose && \
    install --directory --owner diagnose --group diagnose --mode 0700 /data
COPY --from=build /opt/diagnose /opt/diagnose
ENV PATH=/opt/diagnose/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    XDG_CACHE_HOME=/tmp/cache \
    XDG_DATA_HOME=/data \
    DIAGNOSE_SPOOL=/data/spool \
    DIAGNOSE_HOST=0.0.0.0
USER 10001
WORKDIR /data
VOLUME /data
EXPOSE 8321
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8321/healthz', timeout=2)"]
ENTRYPOINT ["diagnose"]
CMD ["serve"]
