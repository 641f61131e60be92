package model

import (
	"fmt"
	"strings"
)

// Model is a system of states and steps. E is the name of a step.
type Model[S comparable, E fmt.Stringer] struct {
	Start S
	// Next calls yield with each step that is possible, and the state after it. A fault
	// is a step that a healthy system does not take.
	Next func(from S, yield func(step E, fault bool, to S))
	// Canon gives states that differ only in names the same form. Nil: there are no names.
	Canon func(S) S
	// Twin gives the state in which two like processes have changed places. Nil: no processes are
	// alike.
	Twin func(S) S
	// Rules are held against each step.
	Rules []Rule[S, E]
	// Settled: nothing is left to do for the events of this state.
	Settled func(S) bool
}

// Rule is a rule that no step may break.
type Rule[S comparable, E fmt.Stringer] struct {
	Name, Text string
	Holds      func(from S, step E, to S) bool
}

// Two rules of every model, beside the model's own rules. A step that breaks such a rule is the
// last step on the way to the state.
const (
	// Stuck: a state that is not settled has a step that is no fault.
	Stuck = "stuck"
	// Reachable: from each state, steps that are no faults lead to a settled state.
	Reachable = "settles"
)

// Result is the result of an exploration.
type Result struct {
	States, Steps int
	Depth         int // steps from the start to the farthest state
	Settled       int // states
	// Broken is the rule that the last step of Trace breaks; empty: no rule was broken.
	Broken string
	Text   string
	Trace  []string
}

func (r Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d states, %d steps, depth %d", r.States, r.Steps, r.Depth)
	if r.Broken == "" {
		return b.String()
	}
	fmt.Fprintf(&b, "\nbroken rule %q: %s\n", r.Broken, r.Text)
	for i, step := range r.Trace {
		fmt.Fprintf(&b, "%3d. %s\n", i+1, step)
	}
	return b.String()
}

// exploration is a breadth-first search, so that no counterexample is shorter than the result.
type exploration[S comparable, E fmt.Stringer] struct {
	m      Model[S, E]
	ids    map[S]int32
	states []S
	parent []int32
	steps  int
	// Steps that are no faults, to find the states that can still be reached.
	from, to []int32
}

// Explore visits every state that can be reached. The exploration ends with the first broken rule.
func (m Model[S, E]) Explore() Result {
	x := exploration[S, E]{m: m, ids: map[S]int32{}}
	same := func(s S) S { return s }
	if m.Canon == nil {
		x.m.Canon = same
	}
	if m.Twin == nil {
		x.m.Twin = same
	}
	x.add(m.Start, -1)
	for at := int32(0); int(at) < len(x.states); at++ {
		if broken := x.visit(at); broken != nil {
			return x.result(broken, x.path(at))
		}
	}
	return x.settles()
}

// add finds a state or the state's twin, or adds the state.
func (x *exploration[S, E]) add(raw S, parent int32) int32 {
	s := x.m.Canon(raw)
	if id, known := x.ids[s]; known {
		return id
	}
	if id, known := x.ids[x.m.Canon(x.m.Twin(raw))]; known {
		return id
	}
	id := int32(len(x.states))
	x.ids[s] = id
	x.states, x.parent = append(x.states, s), append(x.parent, parent)
	return id
}

func (x *exploration[S, E]) visit(at int32) (broken *Rule[S, E]) {
	from, healthy := x.states[at], 0
	x.m.Next(from, func(step E, fault bool, raw S) {
		if broken != nil {
			return
		}
		x.steps++
		for i := range x.m.Rules {
			if !x.m.Rules[i].Holds(from, step, raw) {
				broken = &x.m.Rules[i]
				return
			}
		}
		to := x.add(raw, at)
		if !fault {
			healthy++
			x.from, x.to = append(x.from, at), append(x.to, to)
		}
	})
	if broken == nil && healthy == 0 && !x.m.Settled(from) {
		broken = &Rule[S, E]{Name: Stuck, Text: "A state in which events are left has a step that is no fault."}
	}
	return broken
}

// settles goes back from the settled states. A state that it does not reach can never settle.
func (x *exploration[S, E]) settles() Result {
	first, back := x.reversed()
	reached := make([]bool, len(x.states))
	var queue []int32
	for id, s := range x.states {
		if x.m.Settled(s) {
			reached[id] = true
			queue = append(queue, int32(id))
		}
	}
	settled := len(queue)
	for len(queue) > 0 {
		id := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, before := range back[first[id]:first[id+1]] {
			if !reached[before] {
				reached[before] = true
				queue = append(queue, before)
			}
		}
	}
	for id, ok := range reached {
		if !ok {
			return x.result(&Rule[S, E]{
				Name: Reachable, Text: "From each state, steps that are no faults lead to a settled state.",
			}, x.path(int32(id)))
		}
	}
	r := x.result(nil, x.path(int32(len(x.states)-1)))
	r.Depth, r.Trace, r.Settled = len(r.Trace), nil, settled
	return r
}

// reversed lists the states before each state: back[first[id]:first[id+1]].
func (x *exploration[S, E]) reversed() (first, back []int32) {
	first = make([]int32, len(x.states)+2)
	for _, to := range x.to {
		first[to+2]++
	}
	for i := 2; i < len(first); i++ {
		first[i] += first[i-1]
	}
	back = make([]int32, len(x.to))
	for i, to := range x.to {
		back[first[to+1]] = x.from[i]
		first[to+1]++
	}
	return first, back
}

// path lists the states from the start to a state.
func (x *exploration[S, E]) path(id int32) (path []S) {
	for ; id >= 0; id = x.parent[id] {
		path = append(path, x.states[id])
	}
	for i, j := 0, len(path)-1; i < j; i, j = i+1, j-1 {
		path[i], path[j] = path[j], path[i]
	}
	return path
}

// result has the steps of a path, and then the step that breaks a rule.
func (x *exploration[S, E]) result(broken *Rule[S, E], path []S) Result {
	r := Result{States: len(x.states), Steps: x.steps}
	raw := x.m.Start
	for _, want := range path[1:] {
		step := x.step(&raw, func(_ E, to S) bool {
			return x.m.Canon(to) == want || x.m.Canon(x.m.Twin(to)) == want
		})
		r.Trace = append(r.Trace, step)
	}
	if broken == nil {
		return r
	}
	if r.Broken, r.Text = broken.Name, broken.Text; broken.Holds != nil {
		from := raw
		r.Trace = append(r.Trace, x.step(&raw, func(step E, to S) bool { return !broken.Holds(from, step, to) }))
	}
	return r
}

// step takes the requested step, without renaming, so that names keep their meaning through a
// trace.
func (x *exploration[S, E]) step(raw *S, is func(step E, to S) bool) (text string) {
	found, after := false, *raw
	x.m.Next(*raw, func(step E, fault bool, to S) {
		if !found && is(step, to) {
			if found, after, text = true, to, step.String(); fault {
				text += " (fault)"
			}
		}
	})
	*raw = after
	return text
}
