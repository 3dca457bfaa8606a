package cli

import (
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/bothy-dev/bothy"
)

// startFlags describe a program that already runs in new sandboxes.
type startFlags struct {
	start, ready string
	want         bothy.TemplateStart
}

func (f *startFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.start, "start", "", "`command` of a program that runs already in new sandboxes")
	flags.StringVar(&f.ready, "ready", "", "`when` that program may be used: a port, a URL in the sandbox, the absolute path of a file, or a command that succeeds")
	flags.StringVar(&f.want.User, "start-user", "", "`user` who runs it")
	flags.StringVar(&f.want.Cwd, "start-cwd", "", "`folder` in which it starts")
	secondsVar(flags, &f.want.TimeoutSeconds, "start-timeout", "`time` that it may take to be ready, as in 2m (default 1m)")
	flags.Float64Var(&f.want.CPU, "start-cpu", 0, "`number` of processors of sandboxes that do not request any (default 1)")
	mebibytesVar(flags, &f.want.MemoryMB, "start-memory", "`size` of the memory of sandboxes with it, as in 1g (default 512m)")
	mebibytesVar(flags, &f.want.DiskMB, "start-disk", "`size` of the disk of sandboxes with it, as in 4g (default 2g)")
}

// read returns the request in the flags, or nil.
func (f *startFlags) read() (*bothy.TemplateStart, error) {
	f.want.Command = f.start
	if f.ready != "" {
		f.want.Ready = readyOf(f.ready)
	}
	if f.start != "" {
		return &f.want, nil
	}
	if f.want != (bothy.TemplateStart{}) {
		return nil, usagef("Give its command with --start.", "there is no program that could be ready")
	}
	return nil, nil
}

// readyOf parses a text in one of the four forms of readiness.
func readyOf(text string) *bothy.TemplateReady {
	port, err := strconv.Atoi(text)
	switch {
	case err == nil:
		return &bothy.TemplateReady{Port: port}
	case strings.HasPrefix(text, "http://"), strings.HasPrefix(text, "https://"):
		return &bothy.TemplateReady{URL: text}
	case strings.HasPrefix(text, "/") && !strings.Contains(text, " "):
		return &bothy.TemplateReady{File: text}
	}
	return &bothy.TemplateReady{Command: text}
}
