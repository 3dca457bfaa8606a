# Runs pieces of shell code that come on descriptor 3, each behind its length in bytes as
# twelve digits, one after the other in this one shell. Before each it writes "begin" to descriptor
# 4, and after each a mark to both outputs and "STATUS INTERRUPTED" to descriptor 4.
exec 6>&1 7>&2
__bothy_mark=$1
set --
# While a piece is being given up, every command of it returns at once.
__bothy_stop() { case $BASH_COMMAND in "__bothy_"* | "trap - DEBUG") ;; *) return 2 ;; esac; }
__bothy_end() {
	__bothy_running=
	trap - DEBUG
	shopt -u extdebug
	printf '%s' "$__bothy_mark" >&6
	printf '%s' "$__bothy_mark" >&7
	printf '%s %s\n' "$1" "${__bothy_stopped-}" >&4
	__bothy_stopped=
}
# An interrupt that comes when its piece has ended is none for the next.
trap 'if [[ -n ${__bothy_running-} ]]; then __bothy_stopped=1; shopt -s extdebug; trap __bothy_stop DEBUG; fi' INT
# With -N it reads many bytes at once, and in the locale C they are what is counted.
while LC_ALL=C IFS= read -r -N 12 -u 3 __bothy_size && LC_ALL=C IFS= read -r -N "$((10#$__bothy_size))" -u 3 __bothy_code; do
	__bothy_running=1
	printf 'begin\n' >&4
	. /dev/fd/9 9<<<"$__bothy_code" </dev/null 3<&- 4>&- 6>&- 7>&-
	__bothy_end $?
done
