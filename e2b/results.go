package e2b

import (
	"encoding/json"

	"github.com/bothy-dev/bothy"
)

// formats are E2B's names of MIME types. Other types keep their MIME type as name.
var formats = map[string]string{
	"text/plain": "text", "text/html": "html", "text/markdown": "markdown", "image/svg+xml": "svg", "image/png": "png",
	"image/jpeg": "jpeg", "application/pdf": "pdf", "text/latex": "latex", "application/json": "json",
	"application/javascript": "javascript", mimeData: "data", mimeChart: "chart",
}

// The MIME types of data and charts from interpreters.
const (
	mimeData  = "application/vnd.e2b.data.v1+json"
	mimeChart = "application/vnd.e2b.chart.v1+json"
)

// structured are the formats whose content is a value rather than text.
var structured = map[string]bool{"json": true, "data": true, "chart": true}

// resultOf converts something that code displayed to E2B's form. Main is the value of the last
// expression.
func resultOf(o bothy.CodeOutput, main bool) map[string]any {
	r := map[string]any{"type": "result", "is_main_result": main}
	extra := map[string]any{}
	for mime, text := range o {
		name, known := formats[mime]
		switch {
		case !known:
			extra[mime] = text
		case structured[name]:
			// As it is: decoded and encoded again, 1.0 would become 1.
			if json.Valid([]byte(text)) {
				r[name] = json.RawMessage(text)
			}
		case name == "text":
			r[name] = unquoted(text)
		default:
			r[name] = text
		}
	}
	if len(extra) > 0 {
		r["extra"] = extra
	}
	return r
}

// unquoted removes the quotes around the text of a string, as E2B's interpreter does.
func unquoted(text string) string {
	if len(text) >= 2 && (text[0] == '\'' || text[0] == '"') && text[len(text)-1] == text[0] {
		return text[1 : len(text)-1]
	}
	return text
}

// endOf describes, as an exception, the end of code that raised none.
func endOf(e bothy.CodeEvent) map[string]any {
	name, value := "ExitError", "the code ended with an exit code other than 0"
	switch {
	case e.OOMKilled:
		name, value = "MemoryError", "the code was killed: the sandbox's memory was used up"
	case e.TimedOut:
		name, value = "TimeoutError", "the code was interrupted: its time was up"
	}
	return map[string]any{"type": "error", "name": name, "value": value, "traceback": e.Hint}
}
