# To be sourced by full: E2B's command line, by what it prints.
npm install --prefix "$work/cli" --no-fund --no-audit --silent @e2b/cli@2.19.0
cli() { HOME=$work/cli timeout 120 "$work/cli/node_modules/.bin/e2b" "$@" </dev/null; }

# prints TEXT COMMAND... wants a text in what a command prints.
prints() {
	local text=$1 said
	shift
	said=$("$@" 2>&1) || true
	[[ $said == *"$text"* ]] || { echo "e2b ${*:2} prints: $said" && exit 1; }
}

mkdir "$work/cli/template"
printf 'FROM python-3.12-bare\nRUN echo built >/home/user/how\n' >"$work/cli/template/e2b.Dockerfile"
(cd "$work/cli/template" && prints 'Sandbox.create("of-the-cli")' cli template create of-the-cli)
prints of-the-cli cli template list
made=$("$bothy" create --template of-the-cli)
prints "$made" cli sandbox list
prints built cli sandbox exec "$made" cat /home/user/how
prints "has been killed" cli sandbox kill "$made"
prints "No sandboxes found" cli sandbox list
# What it keeps itself is an account at E2B, which there is none of; a key needs none.
prints "Not logged in" cli auth info
"$bothy" template rm of-the-cli >/dev/null
echo "e2b, its command line: passed"
