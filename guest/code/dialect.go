package code

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// dialect holds, for a language, the code that the agent runs in addition to
// the caller's. It leaves nothing among the caller's variables.
type dialect struct {
	// export sets environment variables permanently.
	export func(env map[string]string) string
	// save sets environment variables and remembers their old values; restore
	// restores those.
	save    func(env map[string]string) string
	restore func() string
	// reseed reseeds the language's random numbers.
	reseed string
	// nothing is code that does nothing.
	nothing string
}

var dialects = map[string]dialect{
	"python": {
		export: func(env map[string]string) string { return pythonOS + ".environ.update(" + pythonDict(env) + ")" },
		save: func(env map[string]string) string {
			d := pythonDict(env)
			return "setattr(" + pythonSys + ", '_bothy_env', {k: " + pythonOS + ".environ.get(k) for k in " + d + "}); " +
				pythonOS + ".environ.update(" + d + ")"
		},
		restore: func() string {
			return "[" + pythonOS + ".environ.pop(k, None) if v is None else " + pythonOS + ".environ.__setitem__(k, v)" +
				" for k, v in " + pythonSys + ".__dict__.pop('_bothy_env', {}).items()]; None"
		},
		reseed: "__import__('random').seed()\n" +
			pythonLoaded("numpy.random") + " and __import__('numpy').random.seed()\n" +
			pythonLoaded("tempfile") + " and setattr(__import__('tempfile'), '_name_sequence', None)\n" +
			pythonLoaded("_ssl") + " and __import__('ssl').RAND_add(" + pythonOS + ".urandom(64), 64.0)\nNone",
		nothing: "None",
	},
	"javascript": {
		nothing: "undefined",
		export:  func(env map[string]string) string { return "void Object.assign(process.env, " + jsonText(env) + ")" },
		save: func(env map[string]string) string {
			keys := jsonText(slices.Sorted(maps.Keys(env)))
			return "void (process[Symbol.for('bothy.env')] = " + keys + ".map((k) => [k, process.env[k]]), Object.assign(process.env, " + jsonText(env) + "))"
		},
		restore: func() string {
			return "void (process[Symbol.for('bothy.env')] ?? []).forEach(([k, v]) => v === undefined ? delete process.env[k] : (process.env[k] = v))"
		},
	},
	"bash": {
		export: func(env map[string]string) string {
			var b strings.Builder
			for _, k := range shellNames(env) {
				b.WriteString("export " + k + "=" + shellQuote(env[k]) + "\n")
			}
			return b.String()
		},
		save: func(env map[string]string) string {
			b := strings.Builder{}
			b.WriteString("__bothy_restore=\n")
			for _, k := range shellNames(env) {
				b.WriteString("if [[ -v " + k + " ]]; then printf -v __bothy_restore '%sexport " + k + "=%q\\n' \"$__bothy_restore\" \"$" + k +
					"\"; else __bothy_restore+='unset " + k + "\n'; fi\nexport " + k + "=" + shellQuote(env[k]) + "\n")
			}
			return b.String()
		},
		restore: func() string { return `eval "$__bothy_restore"; unset __bothy_restore` },
		reseed:  "RANDOM=$(od -An -N4 -tu4 /dev/urandom)",
		nothing: ":",
	},
}

const (
	pythonOS  = "__import__('os')"
	pythonSys = "__import__('sys')"
)

// pythonLoaded asks for a module without loading it.
func pythonLoaded(module string) string { return "'" + module + "' in " + pythonSys + ".modules" }

func jsonText(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings and maps of them can always be encoded
	}
	return string(b)
}

// pythonDict writes a map as Python reads it; JSON's strings are valid there.
func pythonDict(env map[string]string) string {
	return "__import__('json').loads(" + jsonText(jsonText(env)) + ")"
}

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// shellNames returns the names that are valid in the shell, sorted.
func shellNames(env map[string]string) []string {
	var names []string
	for _, k := range slices.Sorted(maps.Keys(env)) {
		valid := k != "" && strings.Trim(k, "_ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789") == "" && (k[0] < '0' || k[0] > '9')
		if valid {
			names = append(names, k)
		}
	}
	return names
}
