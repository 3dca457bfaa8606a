// Package console serves the pages of the console, which are built from the TypeScript
// next to it and embedded. It knows files and headers; the pages use the REST API.
package console

import (
	"bytes"
	"compress/gzip"
	"embed"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
)

// Path is where the console is.
const Path = "/console/"

// policy lets the pages run their own scripts and ask this server, and no more. The
// terminal makes style sheets as it runs.
const policy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self'; " +
	"connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

//go:embed all:embed
var built embed.FS

// absent is the page of a program that was built without the console.
const absent = `<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Bothy: no console</title>
<h1>This program was built without the console</h1>
<p>It is built by <code>make build</code> where Node 20 or newer is there: build Bothy again, and start the server with the new program.
Until then, <a href="/docs">the API</a> and the command line do the same.</p>
`

// Handler serves the pages below Path.
func Handler() http.Handler {
	files, err := fs.Sub(built, "embed")
	if err != nil {
		panic(err) // a wrong name here
	}
	return handler(files)
}

func handler(files fs.FS) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("X-Frame-Options", "DENY")
		name := path.Clean(strings.TrimPrefix(r.URL.Path, Path))
		asset := strings.HasPrefix(name, "assets/")
		if !asset {
			name = "index.html" // every page has an address of its own, below the same file
		}
		body, err := fs.ReadFile(files, name+".gz")
		switch {
		case err != nil && asset:
			http.NotFound(w, r)
			return
		case err != nil:
			h.Set("Content-Type", "text/html; charset=utf-8")
			_, _ = io.WriteString(w, absent)
			return
		}
		h.Set("Cache-Control", "no-cache")
		if asset { // its name changes with what is in it
			h.Set("Cache-Control", "public, max-age=31536000, immutable")
		}
		h.Set("Content-Type", typeOf(path.Ext(name)))
		serve(w, r, body)
	})
}

// typeOf is the media type of a built file. The host's list of types need not know fonts.
func typeOf(ext string) string {
	if ext == ".woff2" {
		return "font/woff2"
	}
	return mime.TypeByExtension(ext)
}

// serve sends a compressed file, as it is to all who can read that.
func serve(w http.ResponseWriter, r *http.Request, packed []byte) {
	w.Header().Add("Vary", "Accept-Encoding")
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Length", strconv.Itoa(len(packed)))
		_, _ = w.Write(packed)
		return
	}
	plain, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		http.Error(w, "the file is damaged; build Bothy again", http.StatusInternalServerError)
		return
	}
	_, _ = io.Copy(w, plain) // its size is ours
}

// Front leads browsers from / to the console, and everybody else on.
func Front(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Accept"), "text/html") {
			next.ServeHTTP(w, r)
			return
		}
		http.Redirect(w, r, Path, http.StatusSeeOther)
	})
}
