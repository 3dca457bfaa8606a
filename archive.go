package bothy

import "net/url"

// ArchiveOptions say how a folder is packed.
type ArchiveOptions struct {
	// Gzip compresses the tar.
	Gzip bool
	// Exclude names what is left out, as a .gitignore does, without negation:
	// "node_modules" and "*.log" at any depth, "/build" and "src/gen" relative
	// to the folder, "cache/" only folders, "src/**/test" with any folders
	// between.
	Exclude []string
}

// SetQuery writes the options as they are in a request.
func (o ArchiveOptions) SetQuery(q url.Values) {
	if o.Gzip {
		q.Set("gzip", "true")
	}
	for _, pattern := range o.Exclude {
		q.Add("exclude", pattern)
	}
}

// ContentType names the kind of archive.
func (o ArchiveOptions) ContentType() string {
	if o.Gzip {
		return "application/gzip"
	}
	return "application/x-tar"
}
