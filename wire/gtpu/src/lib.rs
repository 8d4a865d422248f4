//! GTP-U headers (TS 29.281) and the PDU session container (TS 38.415)
