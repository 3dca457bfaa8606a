# In place of postgres:17, which needs a registry: Debian's PostgreSQL, with the variables that
# packaging/compose sets.
FROM debian:12-slim
RUN apt-get update && apt-get install -y --no-install-recommends postgresql && rm -rf /var/lib/apt/lists/*
COPY postgres.sh /usr/local/bin/start
VOLUME /var/lib/postgresql/data
ENTRYPOINT ["sh", "/usr/local/bin/start"]
