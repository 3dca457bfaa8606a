package config

import (
	"regexp"

	"github.com/bothy-dev/bothy"
)

// Metering says how often usage is counted.
type Metering struct {
	// FlushSeconds is how often running sandboxes are counted, and so how much
	// of their time a crash can lose.
	FlushSeconds int `yaml:"flush_seconds"`
	// WarnAt is the share of a budget at which a warning is due.
	WarnAt float64 `yaml:"warn_at"`
}

// Rates are the prices of bothy.Rates.
type Rates struct {
	Currency       string  `yaml:"currency"`
	VCPUHour       float64 `yaml:"vcpu_hour"`
	CPUHour        float64 `yaml:"cpu_hour"`
	MemoryGBHour   float64 `yaml:"memory_gb_hour"`
	EgressGB       float64 `yaml:"egress_gb"`
	IngressGB      float64 `yaml:"ingress_gb"`
	SnapshotGBHour float64 `yaml:"snapshot_gb_hour"`
	TemplateGBHour float64 `yaml:"template_gb_hour"`
}

// defaultRates are an example.
func defaultRates() Rates {
	return Rates{Currency: "USD", VCPUHour: 0.05, MemoryGBHour: 0.01, EgressGB: 0.05, SnapshotGBHour: 0.0001, TemplateGBHour: 0.0001}
}

func (m Metering) check() error {
	if m.FlushSeconds < 1 || m.FlushSeconds > 3600 {
		return bothy.Errorf(bothy.CodeInvalid, "metering.flush_seconds is %d", m.FlushSeconds).WithHint("Give a value from 1 to 3600.")
	}
	if !(m.WarnAt > 0 && m.WarnAt <= 1) { // refuses NaN, too
		return bothy.Errorf(bothy.CodeInvalid, "metering.warn_at is %v", m.WarnAt).WithHint("Give a share above 0, up to 1, such as 0.8.")
	}
	return nil
}

var currency = regexp.MustCompile(`^[A-Z]{3}$`)

const maxPrice = 1e9

func (r Rates) check() error {
	if !currency.MatchString(r.Currency) {
		return bothy.Errorf(bothy.CodeInvalid, "rates.currency is %q", r.Currency).WithHint("Give three capital letters, such as EUR.")
	}
	for _, price := range []float64{r.VCPUHour, r.CPUHour, r.MemoryGBHour, r.EgressGB, r.IngressGB, r.SnapshotGBHour, r.TemplateGBHour} {
		if !(price >= 0 && price <= maxPrice) {
			return bothy.Errorf(bothy.CodeInvalid, "a price under rates is %v", price).WithHint("Give 0 for what is free.")
		}
	}
	return nil
}
