package kernel

import (
	"testing"
	"testing/synctest"
	"time"

	"gvisor.dev/gvisor/pkg/abi/linux"
	sentrytime "gvisor.dev/gvisor/pkg/sentry/time"
)

func TestMonotonicTimeStopsWhilePaused(t *testing.T) {
	params := vdsoPage(t)
	synctest.Test(t, func(t *testing.T) {
		get := func(k *Timekeeper, c sentrytime.ClockID) time.Duration {
			now, err := k.GetTime(c)
			if err != nil {
				t.Fatal(err)
			}
			return time.Duration(now)
		}
		keeper := NewTimekeeper()
		keeper.SetClocks(&lookedAt{}, params)
		time.Sleep(time.Second)
		keeper.Pause()
		time.Sleep(time.Minute)
		if got := get(keeper, sentrytime.Monotonic); got != time.Second {
			t.Errorf("during a pause it is %s", got)
		}
		keeper.beforeSave()
		saved := &Timekeeper{bootTime: keeper.bootTime, saveMonotonic: keeper.saveMonotonic, saveRealtime: keeper.saveRealtime}
		keeper.Resume(params)
		defer keeper.Destroy()
		time.Sleep(time.Second)
		if m, b := get(keeper, sentrytime.Monotonic), get(keeper, sentrytime.BootTime); m != 2*time.Second || b != m+time.Minute {
			t.Errorf("after a pause of a minute it is %s, and %s since boot", m, b)
		}

		time.Sleep(time.Hour)
		saved.afterLoad(t.Context())
		saved.SetClocks(&lookedAt{}, params)
		defer saved.Destroy()
		time.Sleep(time.Second)
		if m, b := get(saved, sentrytime.Monotonic), get(saved, sentrytime.BootTime); m != 2*time.Second || b != m+time.Minute+time.Hour+time.Second {
			t.Errorf("restored after an hour it is %s, and %s since boot", m, b)
		}
	})
}

type notListening struct{}

func (notListening) NotifyTimer(uint64) {}

// A time span on CLOCK_REALTIME does not go on, either; a time of day is reached.
func TestSpansOfRealtimeStopWhilePaused(t *testing.T) {
	params := vdsoPage(t)
	synctest.Test(t, func(t *testing.T) {
		keeper := NewTimekeeper()
		keeper.SetClocks(&lookedAt{}, params)
		defer keeper.Destroy()
		time.Sleep(time.Second)
		k := &Kernel{timekeeper: keeper}
		timer := keeper.realtimeClock.NewTimer(notListening{})
		defer timer.Destroy()
		set := func(at time.Duration, abs bool) time.Duration {
			t.Helper()
			old, err := k.SetTimer(timer, linux.Itimerspec{Value: linux.NsecToTimespec(int64(at))}, abs, nil)
			if err != nil {
				t.Fatal(err)
			}
			return old.Value.ToDuration()
		}
		for _, abs := range []bool{false, true, false} {
			at := time.Minute
			if abs {
				at += time.Duration(keeper.realtimeClock.Now().Nanoseconds())
			}
			set(at, abs)
			timer.Pause()
			keeper.Pause()
			time.Sleep(time.Hour)
			keeper.Resume(params)
			timer.Resume()
			if left := set(0, false); (left == 0) != abs || left > time.Minute {
				t.Errorf("absolute %v: %s is left", abs, left)
			}
		}
	})
}
