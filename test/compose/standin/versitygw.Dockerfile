# In place of versity/versitygw, which needs a registry: the same program.
FROM debian:12-slim
RUN apt-get update && apt-get install -y --no-install-recommends netcat-openbsd && rm -rf /var/lib/apt/lists/*
COPY versitygw /usr/local/bin/
ENTRYPOINT ["versitygw"]
