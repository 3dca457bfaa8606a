package build

import (
	"fmt"
	"math"
	"regexp"
	"sync/atomic"

	"github.com/moby/buildkit/frontend/dockerfile/shell"
)

// Limits of what a Dockerfile may be and become.
const (
	maxSteps  = 10_000
	maxStages = 200
	// maxItems limits the words of a step, and the variables, labels, ports and volumes of a stage.
	maxItems    = 2000
	maxWarnings = 20
	// maxHeredocs limits the lines of a text with heredocs times its bytes.
	maxHeredocs = 1 << 30
	// maxValue limits one value, because Linux takes no longer variable, and maxText the text of a
	// heredoc.
	maxValue = 128 << 10
	maxText  = maxDockerfile
	// maxValues limits all values of a build together.
	maxValues = 16 << 20
	// maxReplaced limits what the replacements in one word may make on the way.
	maxReplaced = 16 << 20
)

// values counts the bytes that the words of a build have become.
type values struct{ n atomic.Int64 }

// word replaces the variables of a word, which may then have so many bytes. The lexer itself has no
// limit, and ARG A=$B$B doubles.
func (v *values) word(lex *shell.Lex, text string, env shell.EnvGetter, most int) (string, error) {
	in := newWordEnv(text, env, most)
	out, _, err := lex.ProcessWord(text, in)
	if err == nil {
		err = v.count(in, len(out))
	}
	return out, err
}

// words is word for what becomes several words.
func (v *values) words(lex *shell.Lex, text string, env shell.EnvGetter) ([]string, error) {
	in := newWordEnv(text, env, maxValue)
	out, err := lex.ProcessWords(text, in)
	sum := 0
	for _, one := range out {
		sum += len(one)
	}
	if err == nil && len(out) > maxItems {
		err = fmt.Errorf("it becomes %d words, more than %d", len(out), maxItems)
	}
	if err == nil {
		err = v.count(in, sum)
	}
	return out, err
}

func (v *values) count(in *wordEnv, bytes int) error {
	if in.over || bytes > in.most {
		return fmt.Errorf("with its variables replaced it is too long: at most %d KB are allowed", in.most>>10)
	}
	if v.n.Add(int64(bytes)) > maxValues {
		return fmt.Errorf("with all variables replaced the Dockerfile is too long: at most %d MB are allowed", maxValues>>20)
	}
	return nil
}

// wordEnv is the environment for one word. It has no more values once the word would be too long.
type wordEnv struct {
	shell.EnvGetter
	most  int
	bytes int // of the word, and of the values so far
	given int // bytes of the values so far
	// powers are how often the word may multiply.
	powers int
	over   bool
}

// replacing matches ${name/pattern/text}, which may repeat the text for each byte of the variable.
// Those of trimming matches ${name#pattern} and ${name%pattern}, whose patterns take longer to match
// the longer the variable is.
var (
	replacing = regexp.MustCompile(`\$\{(?:[\pL\pN_]*|.)/`)
	trimming  = regexp.MustCompile(`\$\{(?:[\pL\pN_]*|.)[#%]`)
)

func newWordEnv(word string, env shell.EnvGetter, most int) *wordEnv {
	e := &wordEnv{EnvGetter: env, most: most, bytes: len(word), powers: len(replacing.FindAllStringIndex(word, -1))}
	if e.powers == 0 && trimming.MatchString(word) {
		e.powers = 1
	}
	return e
}

// Get implements shell.EnvGetter.
func (e *wordEnv) Get(name string) (string, bool) {
	value, ok := e.EnvGetter.Get(name)
	e.bytes, e.given = e.bytes+len(value), e.given+len(value)
	if e.over = e.over || e.given > e.most || e.replaced() > maxReplaced; e.over {
		return "", ok
	}
	return value, ok
}

// replaced is how many bytes the word can become at most, if each replacement is in another one.
func (e *wordEnv) replaced() float64 {
	if e.powers == 0 {
		return 0
	}
	n := float64(e.powers)
	return float64(e.bytes) * math.Pow(float64(e.given)/n+1, n)
}
