# Runs the shell blocks of one page, in one shell. It is told the file of each on
# descriptor 3, and answers "ok" on descriptor 4. A command that fails ends it.
set -eEuo pipefail
trap 'echo "this failed: $BASH_COMMAND" >&2' ERR
while read -r block <&3; do
	source "$block" 3<&- 4>&-
	echo ok >&4
done
