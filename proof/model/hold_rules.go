package model

// The ways to break the model of the hold.
const (
	HoldWithoutExpiry    Mutation = "a process takes a hold that has not expired"
	HoldByDatabaseClock  Mutation = "a process does not count the end of its hold itself"
	TermsAreOne          Mutation = "a new hold begins no new term"
	WorkersDoNotLook     Mutation = "workers do not look at the hold"
	WorkersLookAhead     Mutation = "a worker looks at the hold for all that is queued"
	RetryOfAnyStatus     Mutation = "a retry is stored whatever the row's status"
	CloseWithoutDraining Mutation = "closing gives up the hold before it drains"
)

// The rules of the hold.
const (
	OneInFlight = "one in flight"
	HolderLooks = "the holder delivers"
	FinalDone   = "done is final"
)

func (m Holds) rules() []Rule[HoldState, HoldStep] {
	return []Rule[HoldState, HoldStep]{
		{HolderLooks, "A delivery begins only after a look at a hold that the process then has, in the term in which it took the event in hand.", func(from HoldState, step HoldStep, _ HoldState) bool {
			p := from.Processes[step.Process]
			held := from.Owner == int8(step.Process) && !from.Expired
			return step.What != looks || held && p.Holds && !p.Stale[step.Event]
		}},
		{OneInFlight, "When a hold has ended, its process has at most one delivery in flight for each worker.", func(_ HoldState, _ HoldStep, to HoldState) bool {
			for _, p := range to.Processes {
				lost := 0
				for event, job := range p.Jobs {
					if p.Lost[event] && (job == looked || job == inListener) {
						lost++
					}
				}
				if lost > 1 {
					return false
				}
			}
			return true
		}},
		{NoDuplicate, "Without a fault an event that a listener had with success is not delivered again.", func(from HoldState, step HoldStep, _ HoldState) bool {
			return step.What != begins || from.Faults > 0 || !from.Delivered[step.Event]
		}},
		{DoneDelivered, "A row is DONE only after a listener succeeded.", func(_ HoldState, _ HoldStep, to HoldState) bool {
			return (!to.Done[0] || to.Delivered[0]) && (!to.Done[1] || to.Delivered[1])
		}},
		{FinalDone, "A row that is DONE stays DONE.", func(from HoldState, _ HoldStep, to HoldState) bool {
			return (!from.Done[0] || to.Done[0]) && (!from.Done[1] || to.Done[1])
		}},
	}
}
