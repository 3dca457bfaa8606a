set -eu
data=/var/lib/postgresql/data
bin=$(echo /usr/lib/postgresql/*/bin)
chown postgres "$data"
if [ ! -e "$data/PG_VERSION" ]; then
	install -o postgres -m 600 "$POSTGRES_PASSWORD_FILE" /run/password
	setpriv --reuid postgres --regid postgres --init-groups "$bin/initdb" -D "$data" -U "$POSTGRES_USER" --pwfile /run/password --auth-local trust --auth-host scram-sha-256
	echo 'host all all all scram-sha-256' >>"$data/pg_hba.conf"
	echo "CREATE DATABASE $POSTGRES_DB" | setpriv --reuid postgres --regid postgres --init-groups "$bin/postgres" --single -D "$data" postgres
fi
exec setpriv --reuid postgres --regid postgres --init-groups "$bin/postgres" -D "$data" -c 'listen_addresses=*' -c unix_socket_directories=/tmp
