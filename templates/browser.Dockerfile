# Chromium, already running, with fonts for most scripts.
FROM python-3.12-bare
LABEL org.opencontainers.image.description="Chromium, already running, with fonts for most scripts"
RUN apt-get update && apt-get install -y --no-install-recommends \
        chromium chromium-sandbox dbus fonts-dejavu-core fonts-freefont-ttf fonts-liberation fonts-noto-cjk \
        fonts-noto-color-emoji fonts-noto-core \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/ldconfig/aux-cache /var/log/apt /var/log/dpkg.log \
        /var/log/alternatives.log /etc/chromium.d/*

# QUIC, encrypted client hello and DNS over HTTPS would hide from the network policy which names are used.
COPY <<POLICY /etc/chromium/policies/managed/bothy.json
{
  "BackgroundModeEnabled": false,
  "BrowserSignin": 0,
  "CommandLineFlagSecurityWarningsEnabled": false,
  "ComponentUpdatesEnabled": false,
  "DefaultDownloadDirectory": "/home/user/downloads",
  "DnsOverHttpsMode": "off",
  "DownloadDirectory": "/home/user/downloads",
  "EncryptedClientHelloEnabled": false,
  "HardwareAccelerationModeEnabled": false,
  "MetricsReportingEnabled": false,
  "PasswordManagerEnabled": false,
  "PromptForDownloadLocation": false,
  "QuicAllowed": false,
  "RemoteDebuggingAllowed": true,
  "SafeBrowsingProtectionLevel": 0,
  "SyncDisabled": true,
  "WebRtcIPHandling": "disable_non_proxied_udp"
}
POLICY

# A client may ask Chromium to close, and it may run out of memory: it is started again. A lock of the
# profile names the host, which is another one in a copy of the sandbox.
COPY --chmod=755 <<'RUN' /usr/local/bin/bothy-browser
#!/bin/sh
while :; do
    rm -f /home/user/browser/Singleton*
    /usr/lib/chromium/chromium --headless=new --user-data-dir=/home/user/browser --remote-debugging-port=9222 \
        --disable-gpu --no-first-run --no-default-browser-check --window-size=1280,800 about:blank
    sleep 0.2
done
RUN
RUN install -d -o user -g user /home/user/browser /home/user/downloads
