package shares

import "time"

// State is the row with the shares of all processes, for people who look at it.
type State struct {
	Of     string
	Kind   [2]string // empty, like Limits, if the row has no process of a version that writes both
	Limits Limits
	// Members have a share, or wait for a share, in the order in which they get parts.
	Members []Member
}

// Member is a process.
type Member struct {
	Name  string
	Parts int
	Of    int // the parts of the limits, as this process knows the limits
	Waits bool
	Until time.Time
}

// Read reads the row at a time of the database's clock. Shares that have ended are left out.
func Read(row Row) (State, error) {
	l, err := readList(row.Value)
	if err != nil {
		return State{}, err
	}
	s := State{Of: l.Of, Kind: l.Kind, Limits: l.Limits}
	for _, m := range l.at(row.Now).Members {
		s.Members = append(s.Members, Member{m.Name, m.Parts, m.Of, m.Wants && m.Parts == 0, time.UnixMicro(m.Until).UTC()})
	}
	return s, nil
}
