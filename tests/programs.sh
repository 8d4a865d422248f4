# The programs to test, sourced: WHIMBREL is the core (target/debug/whimbrel); WHIMBREL_LAB and WHIMBREL_BROKER are beside it where they are not named.
WHIMBREL=$(realpath -m "${WHIMBREL:-$(dirname "${BASH_SOURCE[0]}")/../target/debug/whimbrel}")
WHIMBREL_LAB=$(realpath -m "${WHIMBREL_LAB:-$(dirname "$WHIMBREL")/whimbrel-lab}")
WHIMBREL_BROKER=$(realpath -m "${WHIMBREL_BROKER:-$(dirname "$WHIMBREL")/whimbrel-broker}")
export WHIMBREL WHIMBREL_LAB WHIMBREL_BROKER
