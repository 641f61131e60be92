package model

// The ways to break the model of shares.
const (
	SharesWithoutVersions Mutation = "a process replaces the row whatever its version"
	SharesWithoutExpiry   Mutation = "a process takes shares that have not ended"
	ShareByDatabaseClock  Mutation = "a process does not count the end of its share itself"
	ActsTooEarly          Mutation = "a process acts on more parts before the answer"
	ShrinksTooLate        Mutation = "a process acts on fewer parts only after the answer"
	RunningIsForgotten    Mutation = "a process gives up the places of listeners that run"
	SharesWithoutTurns    Mutation = "a process keeps its parts while others have none"
)

// The rules of shares.
const (
	WithinLimits = "within the limits"
	ActsOnItsOwn = "acts on its own"
)

func (m Shares) rules() []Rule[ShareState, ShareStep] {
	return []Rule[ShareState, ShareStep]{
		{WithinLimits, "The parts on which processes act, or whose listeners run, are never more than all parts.", func(_ ShareState, _ ShareStep, to ShareState) bool {
			var used int8
			for _, p := range to.Sharers {
				used += max(p.Acts, p.Running)
			}
			return used <= m.Parts
		}},
		{ActsOnItsOwn, "A process acts on no more parts than the row has for it.", func(_ ShareState, _ ShareStep, to ShareState) bool {
			for p := range to.Sharers {
				if e := to.Row[p]; to.Sharers[p].Acts > e.Parts || to.Sharers[p].Acts > 0 && e.Expired {
					return false
				}
			}
			return true
		}},
	}
}
