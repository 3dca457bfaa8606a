package config

import (
	"math"
	"testing"

	"github.com/bothy-dev/bothy"
)

func TestMeteringIsChecked(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"never counted":      func(c *Config) { c.Metering.FlushSeconds = 0 },
		"hardly counted":     func(c *Config) { c.Metering.FlushSeconds = 86400 },
		"warned for zero":    func(c *Config) { c.Metering.WarnAt = 0 },
		"warned in per cent": func(c *Config) { c.Metering.WarnAt = 80 },
		"a price below 0":    func(c *Config) { c.Rates.VCPUHour = -1 },
		"no price":           func(c *Config) { c.Rates.EgressGB = math.NaN() },
		"no currency":        func(c *Config) { c.Rates.Currency = "" },
		"a symbol":           func(c *Config) { c.Rates.Currency = "€" },
	} {
		c := Default()
		change(&c)
		if err := c.Finish(); bothy.ErrorCode(err) != bothy.CodeInvalid || bothy.AsError(err).Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
