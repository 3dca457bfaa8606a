package openapi

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/api/problem"
)

// huma keeps these in package variables. This package is the only one that uses huma, so it may
// set them.
func init() {
	huma.NewError = func(status int, msg string, errs ...error) huma.StatusError {
		return newProblem(nil, status, msg, errs)
	}
	huma.NewErrorWithContext = func(ctx huma.Context, status int, msg string, errs ...error) huma.StatusError {
		p := newProblem(ctx.Operation(), status, msg, errs)
		middleware.Note(ctx.Context(), p)
		return p
	}
	// A misspelt field must be refused, even if only its case is wrong.
	huma.ValidateStrictCasing = true
	huma.DefaultArrayNullable = false
	huma.ErrorFormatter = func(format string, values ...any) string {
		for i, v := range values {
			if n, ok := v.(float64); ok {
				values[i] = plainNumber(n)
			}
		}
		return fmt.Sprintf(format, values...)
	}
}

// newProblem describes in our words what huma found wrong with a request.
func newProblem(op *huma.Operation, status int, msg string, errs []error) *problem.Problem {
	switch status {
	case http.StatusRequestEntityTooLarge:
		return problem.Of(middleware.TooLarge())
	case http.StatusUnsupportedMediaType:
		return problem.Of(bothy.Errorf(bothy.CodeMediaType, "the body's content type is not one that this call takes").
			WithHint("Send JSON with the header \"Content-Type: application/json\"."))
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return problem.Of(bothy.Errorf(bothy.CodeInvalid, "%s", describe(msg, errs)).WithHint("%s", advise(op, errs)))
	}
	return problem.Of(fmt.Errorf("%s: %w", msg, errors.Join(errs...)))
}

// describe puts up to three findings into a sentence.
func describe(msg string, errs []error) string {
	var parts []string
	for _, err := range errs {
		var d *huma.ErrorDetail
		if errors.As(err, &d) {
			parts = append(parts, describeOne(d))
		} else {
			parts = append(parts, err.Error())
		}
	}
	slices.Sort(parts) // huma iterates over maps
	switch {
	case len(parts) == 0:
		return msg
	case len(parts) > 3:
		parts = append(parts[:3], fmt.Sprintf("and %d more", len(parts)-3))
	}
	return strings.Join(parts, "; ")
}

func describeOne(d *huma.ErrorDetail) string {
	where, what := d.Location, d.Message
	if where == "body" {
		return "the body is not right: " + what
	}
	for prefix, name := range map[string]string{"body.": "", "query.": "query parameter ", "path.": "path parameter ", "header.": "header "} {
		if rest, ok := strings.CutPrefix(where, prefix); ok {
			where = name + rest
			break
		}
	}
	return where + ": " + what + valueAtFault(d)
}

// valueAtFault repeats short plain values, but nothing that could be a secret.
func valueAtFault(d *huma.ErrorDetail) string {
	if strings.Contains(d.Location, "secrets") {
		return ""
	}
	switch v := d.Value.(type) {
	case string:
		if v != "" && len(v) <= 80 {
			return fmt.Sprintf(", not %q", v)
		}
	case float64:
		return ", not " + plainNumber(v)
	case int64, bool:
		return fmt.Sprintf(", not %v", v)
	}
	return ""
}

// plainNumber formats a number as people do: %v turns a large one into 1e+08.
func plainNumber(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

func advise(op *huma.Operation, errs []error) string {
	const look = "GET /openapi.json, or open /docs, to see what this call takes."
	if op == nil {
		return look
	}
	for _, err := range errs {
		var d *huma.ErrorDetail
		if !errors.As(err, &d) {
			continue
		}
		switch {
		case d.Message == "unexpected property" && strings.Count(d.Location, ".") == 1:
			if m, ok := d.Value.(map[string]any); ok && len(m) > 0 {
				if names := bodyFields(op); len(names) > 0 {
					return "The fields are: " + strings.Join(names, ", ") + "."
				}
			}
		case d.Message == "unknown query parameter":
			return "The query parameters are: " + strings.Join(queryParameters(op), ", ") + "."
		}
	}
	return look
}

func queryParameters(op *huma.Operation) []string {
	names := []string{}
	for _, p := range op.Parameters {
		if p.In == "query" {
			names = append(names, p.Name)
		}
	}
	if len(names) == 0 {
		return []string{"none"}
	}
	return names
}

func bodyFields(op *huma.Operation) []string {
	names, _ := op.Metadata["fields"].([]string)
	return names
}
