package cli

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Values of flags with a unit. A bare number counts in the unit that the API has: seconds, and MiB.

// secondsVar defines a flag of whole seconds.
func secondsVar(flags *pflag.FlagSet, p *int, name, usage string) {
	flags.Var((*interval)(p), name, usage)
}

// interval is a flag's number of seconds, given as such or as in 60s, 5m, 1h or 7d.
type interval int

// Set implements pflag.Value.
func (i *interval) Set(text string) error {
	d, err := parseTime(text)
	if err != nil || d%time.Second != 0 {
		return errors.New("give seconds, or a whole number of them as in 60s or 5m")
	}
	*i = interval(d / time.Second)
	return nil
}

func (i *interval) String() string {
	if *i == 0 {
		return ""
	}
	return strconv.Itoa(int(*i))
}

// Type implements pflag.Value.
func (i *interval) Type() string { return "interval" }

// fractionVar defines a flag of seconds that need not be whole.
func fractionVar(flags *pflag.FlagSet, p *float64, name, usage string) {
	flags.Var((*fraction)(p), name, usage)
}

type fraction float64

func (f *fraction) Set(text string) error {
	d, err := parseTime(text)
	*f = fraction(d.Seconds())
	return err
}

func (f *fraction) String() string {
	if *f == 0 {
		return ""
	}
	return strconv.FormatFloat(float64(*f), 'g', -1, 64)
}

func (f *fraction) Type() string { return "time" }

// timeVar is pflag's DurationVar, with days and bare seconds.
func timeVar(flags *pflag.FlagSet, p *time.Duration, name string, value time.Duration, usage string) {
	*p = value
	flags.Var((*period)(p), name, usage)
}

type period time.Duration

func (t *period) Set(text string) error {
	d, err := parseTime(text)
	*t = period(d)
	return err
}

func (t *period) String() string {
	if *t == 0 {
		return ""
	}
	text := time.Duration(*t).String()
	for _, zeros := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zeros) {
			text = text[:len(text)-2]
		}
	}
	return text
}

func (t *period) Type() string { return "time" }

// parseTime reads 90, 1.5s, 5m, 2h30m or 7d.
func parseTime(text string) (time.Duration, error) {
	wrong := errors.New("give a time such as 90s, 10m, 24h or 7d; a bare number is seconds")
	days, hasDays := strings.CutSuffix(text, "d")
	n, err := strconv.ParseFloat(days, 64)
	switch {
	case err != nil:
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return 0, wrong
		}
		return d, nil
	case hasDays:
		n *= 24 * 3600
	}
	if !(n >= 0 && n < math.MaxInt64/float64(time.Second)) {
		return 0, wrong
	}
	return time.Duration(math.Round(n * float64(time.Second))), nil
}

// mebibytesVar defines a flag of MiB.
func mebibytesVar(flags *pflag.FlagSet, p *int, name, usage string) {
	flags.Var((*mebibytes)(p), name, usage)
}

// mebibytes is a flag's size in MiB, given as such or as in 512m or 2g.
type mebibytes int

func (m *mebibytes) Set(text string) error {
	wrong := errors.New("give a size such as 512m or 2g; a bare number is MiB")
	digits := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
	scale, known := map[string]float64{"": 1, "m": 1, "mb": 1, "mib": 1, "g": 1 << 10, "gb": 1 << 10, "gib": 1 << 10, "t": 1 << 20, "tb": 1 << 20, "tib": 1 << 20}[strings.ToLower(strings.TrimSpace(text[len(digits):]))]
	n, err := strconv.ParseFloat(digits, 64)
	n *= scale
	if err != nil || !known || !(n >= 0 && n < math.MaxInt32) || n != math.Trunc(n) {
		return wrong
	}
	*m = mebibytes(n)
	return nil
}

func (m *mebibytes) String() string {
	if *m == 0 {
		return ""
	}
	return strconv.Itoa(int(*m))
}

func (m *mebibytes) Type() string { return "size" }
