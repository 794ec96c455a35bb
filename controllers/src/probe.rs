//! .
/// x
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeResult {
    /// x
    Ready,
    /// x
    NotReady {
        /// x
        reason: &'static str,
        /// x
        message: String,
    },
    /// x
    Denied {
        /// x
        message: String,
    },
}
impl ProbeResult {
    /// x
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Ready => "Connected",
            Self::NotReady { reason, .. } => reason,
            Self::Denied { .. } => "PolicyDenied",
        }
    }
    /// x
    pub fn message(&self) -> &str {
        match self {
            Self::Ready => "connected",
            Self::NotReady { message, .. } | Self::Denied { message } => message,
        }
    }
}
