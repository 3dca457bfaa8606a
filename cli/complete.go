package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/templates"
)

// completeTimeout bounds how long the Tab key may wait for a server.
const completeTimeout = 2 * time.Second

// A source finds completions. A word may be followed by a tab and a description.
type source func(ctx context.Context, s *session) ([]string, error)

// words are a fixed source.
func words(list ...string) source {
	return func(context.Context, *session) ([]string, error) { return list, nil }
}

// complete makes a source a completion of cobra's. Nothing may be printed while a person types,
// so a failing source offers nothing.
func (a *app) complete(from source) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		const none = cobra.ShellCompDirectiveNoFileComp
		parent := cmd.Context()
		if parent == nil {
			parent = context.Background()
		}
		ctx, cancel := context.WithTimeout(parent, completeTimeout)
		defer cancel()
		s, err := a.connect()
		if err != nil {
			s = &session{} // some need none
		}
		list, err := from(ctx, s)
		if err != nil {
			return nil, none
		}
		return slices.DeleteFunc(list, func(word string) bool { return !strings.HasPrefix(word, prefix) }), none
	}
}

// completeArgs completes the arguments of a command, the first with the first
// source and so on; the last is for all that follow if more is set.
func (a *app) completeArgs(more bool, from ...source) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		at := len(args)
		if more {
			at = min(at, len(from)-1)
		}
		if at >= len(from) {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return a.complete(from[at])(cmd, args, prefix)
	}
}

// sandboxWords are the ids of sandboxes in these states, with their names.
func sandboxWords(states ...bothy.State) source {
	return func(ctx context.Context, s *session) ([]string, error) {
		if s.sandboxes == nil {
			return nil, nil
		}
		page, err := s.sandboxes.List(ctx, bothy.SandboxFilter{States: states})
		var list []string
		for _, sb := range page.Items {
			list = append(list, cobra.CompletionWithDesc(sb.ID, strings.Join(strings.Fields(sb.Name+" "+string(sb.State)+" "+sb.Template), " ")))
		}
		return list, err
	}
}

func snapshotWords(ctx context.Context, s *session) ([]string, error) {
	if s.snapshots == nil {
		return nil, nil
	}
	page, err := s.snapshots.Snapshots(ctx, bothy.SnapshotFilter{})
	var list []string
	for _, n := range page.Items {
		list = append(list, cobra.CompletionWithDesc(n.ID, strings.Join(strings.Fields(n.Name+" of "+n.SandboxID), " ")))
	}
	return list, err
}

func templateWords(ctx context.Context, s *session) ([]string, error) {
	if s.templates == nil {
		return nil, nil
	}
	templates, err := s.templates.Templates(ctx)
	return templateNames(templates), err
}

func tokenWords(ctx context.Context, s *session) ([]string, error) {
	if s.tokens == nil {
		return nil, nil
	}
	tokens, err := s.tokens.Tokens(ctx)
	var list []string
	for _, t := range tokens {
		list = append(list, cobra.CompletionWithDesc(t.ID, t.Name))
	}
	return list, err
}

// hostWords are the names of hosts in these states.
func hostWords(states ...bothy.HostState) source {
	return func(ctx context.Context, s *session) ([]string, error) {
		if s.hosts == nil {
			return nil, nil
		}
		hosts, err := s.hosts.Hosts(ctx)
		var list []string
		for _, h := range hosts {
			if slices.Contains(states, h.State) {
				list = append(list, cobra.CompletionWithDesc(h.Name, string(h.State)))
			}
		}
		return list, err
	}
}

// eitherOf offers the words of several sources.
func eitherOf(sources ...source) source {
	return func(ctx context.Context, s *session) (all []string, err error) {
		for _, from := range sources {
			list, wrong := from(ctx, s)
			if wrong != nil {
				err = wrong
				continue
			}
			all = append(all, list...)
		}
		if len(all) > 0 {
			return all, nil
		}
		return nil, err
	}
}

var (
	liveOnes   = sandboxWords(bothy.LiveStates...)
	allOnes    = sandboxWords()
	pausedOnes = sandboxWords(bothy.StatePaused)
	modes      = words(string(bothy.NetworkOff), string(bothy.NetworkRestricted), string(bothy.NetworkOpen))
	builtIn    = words(templates.Names()...)
)

// arguments maps each command to the completions of its arguments.
var arguments = map[string]struct {
	from []source
	more bool
}{
	"bothy create":              {[]source{templateWords}, false},
	"bothy get":                 {[]source{allOnes}, false},
	"bothy rm":                  {[]source{liveOnes}, true},
	"bothy exec":                {[]source{liveOnes}, false},
	"bothy sh":                  {[]source{liveOnes}, false},
	"bothy ps":                  {[]source{liveOnes}, false},
	"bothy logs":                {[]source{liveOnes}, false},
	"bothy metrics":             {[]source{liveOnes}, false},
	"bothy open":                {[]source{liveOnes}, false},
	"bothy forward":             {[]source{liveOnes}, false},
	"bothy code":                {[]source{liveOnes}, false},
	"bothy shell create":        {[]source{liveOnes}, false},
	"bothy shell exec":          {[]source{liveOnes}, false},
	"bothy shell ls":            {[]source{liveOnes}, false},
	"bothy shell interrupt":     {[]source{liveOnes}, false},
	"bothy shell restart":       {[]source{liveOnes}, false},
	"bothy shell rm":            {[]source{liveOnes}, false},
	"bothy restart":             {[]source{sandboxWords(bothy.StateFailed)}, false},
	"bothy update":              {[]source{sandboxWords(bothy.StateRunning, bothy.StatePaused)}, false},
	"bothy pause":               {[]source{sandboxWords(bothy.StateRunning)}, true},
	"bothy resume":              {[]source{eitherOf(pausedOnes, snapshotWords)}, true},
	"bothy snapshot":            {[]source{sandboxWords(bothy.StateRunning)}, false},
	"bothy fork":                {[]source{liveOnes}, false},
	"bothy rollback":            {[]source{liveOnes, snapshotWords}, false},
	"bothy network get":         {[]source{allOnes}, false},
	"bothy network set":         {[]source{liveOnes, modes}, false},
	"bothy network secrets":     {[]source{liveOnes}, false},
	"bothy network log":         {[]source{allOnes}, false},
	"bothy template get":        {[]source{templateWords}, false},
	"bothy template rm":         {[]source{templateWords}, true},
	"bothy template tag":        {[]source{templateWords}, false},
	"bothy template push":       {[]source{templateWords}, false},
	"bothy template export":     {[]source{templateWords}, false},
	"bothy template sbom":       {[]source{templateWords}, false},
	"bothy template provenance": {[]source{templateWords}, false},
	"bothy template build":      {[]source{builtIn}, false},
	"bothy token rm":            {[]source{tokenWords}, true},
	"bothy host cordon":         {[]source{hostWords(bothy.HostUp)}, true},
	"bothy host uncordon":       {[]source{hostWords(bothy.HostCordoned, bothy.HostDraining)}, true},
	"bothy host drain":          {[]source{hostWords(bothy.HostUp, bothy.HostCordoned, bothy.HostDraining)}, false},
	"bothy host rm":             {[]source{hostWords(bothy.HostDead)}, true},
	"bothy move":                {[]source{liveOnes, hostWords(bothy.HostUp)}, false},
	"bothy snapshots rm":        {[]source{snapshotWords}, true},
	"bothy snapshot export":     {[]source{snapshotWords}, false},
}

// flagWords maps flags to the completions of their values, in all commands.
var flagWords = map[string]source{
	"template":     templateWords,
	"snapshot":     snapshotWords,
	"network":      modes,
	"size":         words("small", "medium", "large"),
	"engine":       words("gvisor", "microvm", "auto"),
	"on-timeout":   words(string(bothy.TimeoutTerminate), string(bothy.TimeoutPause)),
	"on-host-loss": words(string(bothy.HostLossPause), string(bothy.HostLossResume), string(bothy.HostLossFail)),
	"preset":       words("pypi", "npm", "github", "go", "debian", "crates", "llm"),
	"scope":        words(scopeWords()...),
	"state": words(string(bothy.StateStarting), string(bothy.StateRunning), string(bothy.StatePausing), string(bothy.StatePaused),
		string(bothy.StateResuming), string(bothy.StateStopping), string(bothy.StateStopped), string(bothy.StateFailed)),
}

func scopeWords() []string {
	var list []string
	for _, scope := range bothy.AllScopes {
		list = append(list, string(scope))
	}
	return list
}

// addCompletion gives all commands below root their completions.
func (a *app) addCompletion(cmd *cobra.Command) {
	if x, ok := arguments[cmd.CommandPath()]; ok && cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = a.completeArgs(x.more, x.from...)
	}
	for name, from := range flagWords {
		if cmd.Flags().Lookup(name) != nil {
			_ = cmd.RegisterFlagCompletionFunc(name, a.complete(from)) // fails only if it is there
		}
	}
	for _, child := range cmd.Commands() {
		a.addCompletion(child)
	}
}
