package checker

import (
	"slices"
	"time"
)

// fault is a fault that the run did.
type fault struct {
	kind        string
	from, until time.Time
}

// faults are the faults of a run, by process; the key "" holds the faults of all processes.
type faults map[string][]fault

// faultsOf are the faults in records, which are in order. A fault that ends a process lasts until
// the last record of the process.
func faultsOf(records []Record) faults {
	fs, last := faults{}, map[string]time.Time{}
	for _, r := range records {
		if r.Op != OpFault {
			last[r.Process] = r.At
		}
	}
	for _, r := range records {
		if r.Op != OpFault {
			continue
		}
		until := latest(r.At, r.Until)
		if r.Fault == Kill || r.Fault == Terminate {
			until = latest(until, last[r.Process])
		}
		fs[r.Process] = append(fs[r.Process], fault{r.Fault, r.At, until})
	}
	return fs
}

func latest(x, y time.Time) time.Time {
	if x.After(y) {
		return x
	}
	return y
}

// harm is the number of faults, apart from shutdowns.
func (fs faults) harm() (n int) {
	for _, of := range fs {
		for _, f := range of {
			if f.kind != Terminate {
				n++
			}
		}
	}
	return n
}

// death is when a process was killed, or far.
func (fs faults) death(process string) time.Time {
	for _, f := range fs[process] {
		if f.kind == Kill {
			return f.until
		}
	}
	return far
}

// during reports whether a fault of a process overlaps a time. Without kinds, every fault counts.
func (fs faults) during(process string, from, until time.Time, kinds ...string) bool {
	return fs.since(time.Time{}, process, from, until, kinds...)
}

// since is during for the faults that began at a time or later.
func (fs faults) since(began time.Time, process string, from, until time.Time, kinds ...string) bool {
	overlaps := func(f fault) bool {
		return (len(kinds) == 0 || slices.Contains(kinds, f.kind)) && !f.from.Before(began) && !f.until.Before(from) && !f.from.After(until)
	}
	return slices.ContainsFunc(fs[process], overlaps) || process != "" && slices.ContainsFunc(fs[""], overlaps)
}

// anywhere reports whether a fault of any process overlaps a time.
func (fs faults) anywhere(from, until time.Time) bool {
	for process := range fs {
		if fs.during(process, from, until) {
			return true
		}
	}
	return false
}

// explains reports whether a fault explains that another delivery began at a time although there
// was this delivery: the fault overlaps the time in which the outcome of this delivery was not in
// the table.
func (f *facts) explains(d *delivery, other time.Time, kinds ...string) bool {
	until := other
	if d.end != far && d.result != "" && d.end.Add(f.Promise.Lease).Before(until) {
		until = d.end.Add(f.Promise.Lease)
	}
	return f.faults.during(d.process, d.begin, until, kinds...)
}

// afterStop finds the stop after which a process may still begin a delivery that it was about to
// begin: the lease may have expired during the stop.
func (f *facts) afterStop(d *delivery) (stop fault, ok bool) {
	for _, of := range f.faults[d.process] {
		if of.kind == Stop && !d.begin.Before(of.from) && !d.begin.After(of.until.Add(f.Promise.Lease)) {
			return of, true
		}
	}
	return fault{}, false
}

// sample is the number of deliveries for which the chance of an explanation is computed.
const sample = 1000

// chance is how likely a fault explains a delivery that has nothing to do with the fault: the share
// of the processes' time at which the window of a delivery overlaps a fault.
func (f *facts) chance() float64 {
	lives := map[string]*fault{} // from a process's first delivery to the last
	for _, d := range f.deliveries {
		if lives[d.process] == nil {
			lives[d.process] = &fault{from: d.begin}
		}
		lives[d.process].until = d.begin
	}
	of := faults{}
	for process := range lives {
		of[process] = slices.DeleteFunc(slices.Concat(f.faults[process], f.faults[""]), func(f fault) bool { return f.kind == Terminate })
		slices.SortFunc(of[process], func(x, y fault) int { return x.from.Compare(y.from) })
	}
	var hit, all float64
	for i := 0; i < len(f.deliveries); i += max(1, len(f.deliveries)/sample) {
		window := f.Promise.Lease
		if d := f.deliveries[i]; d.result != "" {
			window += d.end.Sub(d.begin)
		}
		for process, life := range lives {
			hit += covered(of[process], window, *life).Seconds()
			all += life.until.Sub(life.from).Seconds()
		}
	}
	if all == 0 {
		return 0
	}
	return hit / all
}

// covered is the part of a process's life in which the window of a delivery that begins then
// overlaps a fault. The faults are in order.
func covered(of []fault, window time.Duration, life fault) (sum time.Duration) {
	at := life.from
	for _, f := range of {
		from, until := latest(f.from.Add(-window), at), f.until
		if until.After(life.until) {
			until = life.until
		}
		if until.After(from) {
			sum += until.Sub(from)
			at = until
		}
	}
	return sum
}
