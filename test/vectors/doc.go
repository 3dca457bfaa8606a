// Package vectors holds scenarios that every way to a sandbox must play alike:
// the REST API itself, the command line, and the SDKs. The scenarios are data, in
// testdata/scenarios; a player is whatever does one step at a time.
//
// A step says what to do, with which arguments, and what comes of it:
//
//	{"do": "exec", "command": "exit 3", "expect": {"exit_code": 3}}
//	{"do": "read", "path": "nothing", "fails": "file_not_found"}
//
// What is expected is a value, or one of {"contains": …}, {"matches": …},
// {"min": …}, {"length": …} and {"some": …} for one of a list; its name may be a
// path, as in "results.0.text/plain". "save" keeps parts of an answer for the
// steps behind it, which name them as in "$PID". "on" has steps that are played
// once a text has arrived, while the command still runs. A player that is named
// in "not" leaves the step out, because there is no way to say it there.
//
// Players are programs that read a step from a line of standard input and write
// the answer as a line, {"ok": {…}} or {"error": {"code", "hint"}}. Before the
// answer to "stream" come lines {"text": …} as the output arrives.
package vectors
