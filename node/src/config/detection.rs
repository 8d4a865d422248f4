//! The applications that rules may name, as the UPF of this program knows them.

use std::net::IpAddr;

use whimbrel_user::{Application, ApplicationError, Applications, DomainName, FlowDescription, Pfd};

use super::section::Section;
use super::value::Value;

impl Value for FlowDescription {
    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| "a flow such as `permit out 6 from 192.0.2.0/24 443 to assigned`".into())
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for DomainName {
    fn read(text: &str) -> Result<Self, String> {
        let expected = "a name such as `video.example`, or `*.video.example` for all below it, behind `dns` or `tls` where it is looked for \
                        there alone";
        text.parse().map_err(|_| expected.into())
    }

    fn show(&self) -> String {
        format!("\"{self}\"")
    }
}

pub(super) fn read(root: &mut Section<'_, '_>) -> Applications {
    let doc = "Applications that the UPF of this program recognises, for rules that name an application. See docs/applications.md.";
    root.section("detection", doc, |s| {
        let resolvers: Vec<IpAddr> = s.list(
            "resolvers",
            vec![],
            "Name servers whose answers are believed. None named: any that the UE has asked.",
        );
        let described = s.sections(
            "applications",
            0,
            "Descriptions of applications. A packet is an application's if it meets one of them; of flows and names in one, it has to \
             meet one of each.",
            |s, _| {
                let id = s.optional::<String>("id", "video", "The application.").unwrap_or_default();
                let flows = s.list("flows", vec![], "Its flows: permit out 6 from 192.0.2.0/24 443 to assigned.");
                let names = s.list(
                    "names",
                    vec![],
                    "The names of its servers: video.example, or \"*.video.example\" for all below it. `dns` or `tls` before one: \
                     looked for there alone.",
                );
                if id.is_empty() {
                    s.refuse("id", "a description of nothing", "say which application, as rules name it");
                }
                let judged = Application { id: id.into(), pfds: vec![Pfd { flows, names }] };
                if judged.pfds.iter().all(|p| p.flows.is_empty() && p.names.is_empty()) {
                    s.refuse("id", ApplicationError::Empty(judged.id.clone()).to_string(), "give it `flows` or `names`");
                }
                judged
            },
        );
        let mut known: Vec<Application> = Vec::new();
        for one in described {
            match known.iter_mut().find(|a| a.id == one.id) {
                Some(a) => a.pfds.extend(one.pfds),
                None => known.push(one),
            }
        }
        let all = Applications { known, resolvers };
        if let Err(wrong @ (ApplicationError::TooMany | ApplicationError::TooLong(_))) = all.check() {
            s.refuse("applications", wrong.to_string(), "say it shorter, by networks instead of addresses");
        }
        all
    })
}
